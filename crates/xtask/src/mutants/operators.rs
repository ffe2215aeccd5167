//! The operators that derive mutants from a source file. Each mutant is a switch in a mutated copy of the file, and all
//! mutants of a file are in the same copy.

use std::collections::BTreeSet;
use std::error::Error;
use std::mem;

use quote::ToTokens;
use serde::Serialize;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, BinOp, Block, Expr, ExprBinary, Ident, ImplItemConst, ImplItemFn, Item, ItemFn, Lit, Pat,
    PatGuard, ReturnType, Signature, Stmt, TraitItemConst, TraitItemFn, Type, UnOp, Variant, parse_quote,
};

/// What a mutant changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operator {
    /// A condition, or one of several that are combined, always permits what it guards.
    ConditionDropped,
    /// A condition, or one of several that are combined, never permits what it guards.
    NeverTaken,
    /// A comparison includes the bound that it excludes, or the reverse.
    ComparisonMoved,
    /// `+ 1` or `- 1` is left out.
    OneLeftOut,
    /// A call is left out.
    CallLeftOut,
    /// A value is not assigned, and keeps its previous value.
    ValueNotReset,
    /// A loop leaves out its first element.
    FirstLeftOut,
    /// `min` becomes `max`, or the reverse.
    ExtremeSwapped,
    /// A message is sent to another process.
    WrongRecipient,
}

/// A place where the code can be mutated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Site {
    /// The function that contains the place, with the type that it belongs to.
    pub(crate) function: String,
    /// What the mutant changes there.
    pub(crate) operator: Operator,
    /// The code that the mutant changes.
    pub(crate) text: String,
}

/// Functions whose results only people and reports read.
const DESCRIPTIVE: &[&str] = &[
    "fmt",
    "add_to",
    "describe",
    "remedy",
    "gauges",
    "footprint",
    "control_kind",
    "saved_len",
    "bytes_of",
    "size",
];
/// Functions that only defects call.
const DEFECTIVE: &[&str] = &["add_silent_clusters", "continue_interrupted", "is_of_logs", "move_to"];
/// Methods that take a condition as a closure.
const FILTERS: &[&str] = &["filter", "retain", "any", "all", "take_while", "skip_while", "find", "position"];
/// What a query of a defect switch contains. In correct code, the answer is a constant.
const SWITCHES: &[&str] = &["obeys(", ".has(Defect", "defects", ".is_sound(", "rules."];

/// Returns a copy of the source text that contains all its mutants, and the mutants. Their numbers count from `first`.
/// The copy omits the mutants in `unviable`, which do not compile.
pub(crate) fn mutate(
    source: &str,
    first: usize,
    unviable: &BTreeSet<usize>,
) -> Result<(String, Vec<Site>), Box<dyn Error>> {
    let mut file = syn::parse_file(source)?;
    let mut mutator = Mutator {
        first,
        unviable,
        sites: Vec::new(),
        names: Vec::new(),
        late: BTreeSet::new(),
        answers: BTreeSet::new(),
        constants: BTreeSet::new(),
    };
    mutator.visit_file_mut(&mut file);
    Ok((file.into_token_stream().to_string(), mutator.sites))
}

struct Mutator<'a> {
    first: usize,
    unviable: &'a BTreeSet<usize>,
    sites: Vec<Site>,
    /// The type and the function around the current place.
    names: Vec<String>,
    /// The variables of the current function that are declared without a value.
    late: BTreeSet<String>,
    /// The variables of the current function that are answers of a defect switch.
    answers: BTreeSet<String>,
    /// Those of them that hold in correct code.
    constants: BTreeSet<String>,
}

impl Mutator<'_> {
    /// Adds a mutant, and returns the condition under which it is active; `None` if the mutant does not compile.
    fn switch(&mut self, operator: Operator, text: &str) -> Option<Expr> {
        let number = self.first + self.sites.len();
        let site = Site { function: self.names.join("::"), operator, text: text.to_owned() };
        self.sites.push(site);
        let literal = u32::try_from(number).unwrap_or(u32::MAX);
        (!self.unviable.contains(&number))
            .then(|| parse_quote!(::faultline_core::mutants::is_active(#literal)))
    }

    /// Returns whether a condition only asks a defect switch.
    fn is_constant(&self, text: &str) -> bool {
        is_switch(text) || self.answers.contains(text.trim_start_matches('!'))
    }

    /// Returns the value that a condition has in correct code, if a defect switch determines it.
    fn value(&self, condition: &Expr) -> Option<bool> {
        match condition {
            Expr::Paren(it) => self.value(&it.expr),
            Expr::Unary(it) if matches!(it.op, UnOp::Not(_)) => self.value(&it.expr).map(|it| !it),
            Expr::Binary(it) => match (it.op, self.value(&it.left), self.value(&it.right)) {
                (BinOp::And(_), Some(false), _) | (BinOp::And(_), _, Some(false)) => Some(false),
                (BinOp::Or(_), Some(true), _) | (BinOp::Or(_), _, Some(true)) => Some(true),
                _ => None,
            },
            Expr::MethodCall(it) => (it.method == "obeys" || it.method == "is_sound").then_some(true),
            Expr::Call(_) => shortened(condition).starts_with("obeys(").then_some(true),
            Expr::Field(_) => shortened(condition).contains("rules.").then_some(true),
            Expr::Path(_) => self.constants.contains(&shortened(condition)).then_some(true),
            _ => None,
        }
    }

    /// Mutates a whole condition: it always holds, or never.
    fn either(&mut self, condition: &mut Expr, text: &str) {
        self.permit(condition, text);
        self.forbid(condition, text);
    }

    fn permit(&mut self, condition: &mut Expr, text: &str) {
        if let Some(active) = self.switch(Operator::ConditionDropped, text) {
            *condition = parse_quote!((#active || (#condition)));
        }
    }

    fn forbid(&mut self, condition: &mut Expr, text: &str) {
        if let Some(active) = self.switch(Operator::NeverTaken, text) {
            *condition = match contains_let(condition) {
                true => parse_quote!(!#active && #condition),
                false => parse_quote!((!#active && (#condition))),
            };
        }
    }

    /// Mutates the condition of a branch.
    fn branch(&mut self, condition: &mut Expr) {
        if self.value(condition).is_some() {
            return;
        }
        let text = shortened(condition);
        match condition {
            Expr::Let(it) => self.visit_expr_mut(&mut it.expr),
            _ => self.visit_expr_mut(condition),
        }
        if self.is_constant(&text) {
            return;
        }
        match condition {
            Expr::Binary(ExprBinary { op: BinOp::Or(_), .. }) => self.permit(condition, &text),
            Expr::Binary(ExprBinary { op: BinOp::And(_), .. }) | Expr::Let(_) => {
                self.forbid(condition, &text)
            }
            _ => self.either(condition, &text),
        }
    }

    /// Mutates an operand of `&&` (`all`) or `||`: it has no effect on the whole.
    fn operand(&mut self, operand: &mut Expr, all: bool) {
        let text = shortened(operand);
        match operand {
            Expr::Let(it) => return self.visit_expr_mut(&mut it.expr),
            Expr::Binary(ExprBinary { op: BinOp::And(_), .. }) if all => {
                return self.visit_expr_mut(operand);
            }
            Expr::Binary(ExprBinary { op: BinOp::Or(_), .. }) if !all => {
                return self.visit_expr_mut(operand);
            }
            _ => self.visit_expr_mut(operand),
        }
        if self.is_constant(&text) {
            return;
        }
        match all {
            true => self.permit(operand, &text),
            false => self.forbid(operand, &text),
        }
    }

    fn binary(&mut self, expr: &mut Expr) {
        if self.value(expr).is_some() {
            return;
        }
        let text = shortened(expr);
        let Expr::Binary(binary) = expr else { return };
        let moved: BinOp = match binary.op {
            BinOp::And(_) | BinOp::Or(_) => {
                let all = matches!(binary.op, BinOp::And(_));
                self.operand(&mut binary.left, all);
                return self.operand(&mut binary.right, all);
            }
            BinOp::Lt(_) => parse_quote!(<=),
            BinOp::Le(_) => parse_quote!(<),
            BinOp::Gt(_) => parse_quote!(>=),
            BinOp::Ge(_) => parse_quote!(>),
            BinOp::Add(_) | BinOp::Sub(_) if is_one(&binary.right) => {
                self.visit_expr_mut(&mut binary.left);
                let left = &binary.left;
                if let Some(active) = self.switch(Operator::OneLeftOut, &text) {
                    *expr = parse_quote!((if #active { #left } else { #expr }));
                }
                return;
            }
            _ => return visit_mut::visit_expr_mut(self, expr),
        };
        self.visit_expr_mut(&mut binary.left);
        self.visit_expr_mut(&mut binary.right);
        let (left, right) = (&binary.left, &binary.right);
        if let Some(active) = self.switch(Operator::ComparisonMoved, &text) {
            *expr = parse_quote!((if #active { (#left) #moved (#right) } else { #expr }));
        }
    }

    fn call(&mut self, expr: &mut Expr) {
        let text = shortened(expr);
        let Expr::MethodCall(call) = expr else { return };
        let method = call.method.to_string();
        if FILTERS.contains(&method.as_str())
            && let Some(Expr::Closure(closure)) = call.args.first_mut()
            && !matches!(*closure.body, Expr::Block(_))
        {
            self.visit_expr_mut(&mut call.receiver);
            let text = shortened(&closure.body);
            self.visit_expr_mut(&mut closure.body);
            if !self.is_constant(&text) && !is_chain(&closure.body) {
                self.permit(&mut closure.body, &text);
            }
            return;
        }
        visit_mut::visit_expr_method_call_mut(self, call);
        let arguments = call.args.len();
        let swapped: Option<Ident> = match (method.as_str(), arguments) {
            ("min", 1) => Some(parse_quote!(max)),
            ("max", 1) => Some(parse_quote!(min)),
            _ => None,
        };
        if let Some(swapped) = swapped
            && let Some(active) = self.switch(Operator::ExtremeSwapped, &text)
        {
            let (receiver, argument) = (&call.receiver, &call.args[0]);
            *expr = parse_quote!((if #active { (#receiver).#swapped(#argument) } else { #expr }));
            return;
        }
        if matches!(method.as_str(), "control" | "send_image") && arguments == 2 {
            let to = &mut call.args[0];
            if !to.to_token_stream().to_string().contains("Cluster")
                && let Some(active) = self.switch(Operator::WrongRecipient, &text)
            {
                *to = parse_quote!(::faultline_core::mutants::recipient(#to, #active));
            }
        }
    }

    /// Mutates a block. `is_unit` tells that the block has no value.
    fn block(&mut self, block: &mut Block, is_unit: bool) {
        let count = block.stmts.len();
        for (place, statement) in block.stmts.iter_mut().enumerate() {
            match statement {
                Stmt::Local(local) => {
                    if let Pat::Ident(it) = &local.pat {
                        let init = local.init.as_ref();
                        match init.and_then(|it| self.value(&it.expr)) {
                            Some(true) => self.constants.insert(it.ident.to_string()),
                            _ => self.constants.remove(&it.ident.to_string()),
                        };
                        match &local.init {
                            None => self.late.insert(it.ident.to_string()),
                            Some(init) if is_switch(&shortened(&init.expr)) => {
                                self.answers.insert(it.ident.to_string())
                            }
                            Some(_) => self.answers.remove(&it.ident.to_string()),
                        };
                    }
                    visit_mut::visit_local_mut(self, local);
                }
                Stmt::Expr(expr, Some(_)) => self.statement(expr),
                Stmt::Expr(expr, None) if is_unit || place + 1 < count => self.unit(expr),
                Stmt::Expr(expr, None) => self.visit_expr_mut(expr),
                Stmt::Item(item) => self.visit_item_mut(item),
                Stmt::Macro(_) => {}
            }
        }
    }

    /// Mutates an expression without a value.
    fn unit(&mut self, expr: &mut Expr) {
        match expr {
            Expr::If(it) => {
                let value = self.value(&it.cond);
                self.branch(&mut it.cond);
                if value != Some(false) {
                    self.block(&mut it.then_branch, true);
                }
                if value != Some(true)
                    && let Some((_, other)) = &mut it.else_branch
                {
                    self.unit(other);
                }
            }
            Expr::Match(it) => {
                self.visit_expr_mut(&mut it.expr);
                for arm in &mut it.arms {
                    self.visit_pat_mut(&mut arm.pat);
                    self.unit(&mut arm.body);
                }
            }
            Expr::Block(it) => self.block(&mut it.block, true),
            _ => self.statement(expr),
        }
    }

    /// Mutates a call or an assignment whose value is not used.
    fn statement(&mut self, expr: &mut Expr) {
        let text = shortened(expr);
        let operator = match expr {
            Expr::Assign(it) => match &*it.left {
                Expr::Infer(_) => None,
                Expr::Path(it)
                    if it.path.get_ident().is_some_and(|it| self.late.contains(&it.to_string())) =>
                {
                    None
                }
                _ => Some(Operator::ValueNotReset),
            },
            Expr::Binary(it) if is_assignment(it.op) => Some(Operator::ValueNotReset),
            Expr::Call(_) | Expr::MethodCall(_) => Some(Operator::CallLeftOut),
            _ => None,
        };
        self.visit_expr_mut(expr);
        // In correct code, rules already have the value that a query of defect switches returns.
        if let Some(operator) = operator
            && !text.trim_start_matches('(').starts_with("rules.")
            && let Some(active) = self.switch(operator, &text)
        {
            *expr = parse_quote!(if !#active { #expr; });
        }
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &mut Block) {
        let name = signature.ident.to_string();
        if signature.constness.is_some() || is_left_out(&name) || is_conditional(attributes) {
            return;
        }
        self.names.push(name);
        let outer = (mem::take(&mut self.late), mem::take(&mut self.answers), mem::take(&mut self.constants));
        let answer = answer(signature, block);
        self.block(block, matches!(signature.output, ReturnType::Default));
        if let Some(text) = answer
            && let Some(Stmt::Expr(tail, None)) = block.stmts.last_mut()
        {
            self.either(tail, &text);
        }
        (self.late, self.answers, self.constants) = outer;
        self.names.pop();
    }
}

impl VisitMut for Mutator<'_> {
    fn visit_item_mut(&mut self, item: &mut Item) {
        match item {
            Item::Mod(it) if is_conditional(&it.attrs) => {}
            Item::Mod(_) | Item::Fn(_) | Item::Trait(_) => visit_mut::visit_item_mut(self, item),
            Item::Impl(it) => {
                let name = it.self_ty.to_token_stream().to_string();
                self.names.push(name.split(' ').next().unwrap_or_default().to_owned());
                visit_mut::visit_item_impl_mut(self, it);
                self.names.pop();
            }
            _ => {}
        }
    }

    fn visit_item_fn_mut(&mut self, it: &mut ItemFn) {
        self.function(&it.attrs, &it.sig, &mut it.block);
    }

    fn visit_impl_item_fn_mut(&mut self, it: &mut ImplItemFn) {
        self.function(&it.attrs, &it.sig, &mut it.block);
    }

    fn visit_trait_item_fn_mut(&mut self, it: &mut TraitItemFn) {
        if let Some(block) = &mut it.default {
            self.function(&it.attrs, &it.sig, block);
        }
    }

    fn visit_impl_item_const_mut(&mut self, _: &mut ImplItemConst) {}

    fn visit_trait_item_const_mut(&mut self, _: &mut TraitItemConst) {}

    fn visit_variant_mut(&mut self, _: &mut Variant) {}

    fn visit_type_mut(&mut self, _: &mut Type) {}

    fn visit_block_mut(&mut self, block: &mut Block) {
        self.block(block, false);
    }

    fn visit_pat_guard_mut(&mut self, it: &mut PatGuard) {
        self.branch(&mut it.guard);
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        match expr {
            Expr::If(it) => {
                let value = self.value(&it.cond);
                self.branch(&mut it.cond);
                if value != Some(false) {
                    self.block(&mut it.then_branch, false);
                }
                if value != Some(true)
                    && let Some((_, other)) = &mut it.else_branch
                {
                    self.visit_expr_mut(other);
                }
            }
            Expr::Binary(_) => self.binary(expr),
            Expr::MethodCall(_) => self.call(expr),
            Expr::ForLoop(it) => {
                let text = format!("for {} in {}", shortened(&it.pat), shortened(&it.expr));
                self.visit_expr_mut(&mut it.expr);
                self.block(&mut it.body, true);
                if let Some(active) = self.switch(Operator::FirstLeftOut, &text) {
                    let elements = &it.expr;
                    *it.expr = parse_quote!(
                        ::core::iter::IntoIterator::into_iter(#elements).skip(usize::from(#active))
                    );
                }
            }
            Expr::While(it) => {
                // A condition that always holds would make the loop endless.
                match &mut *it.cond {
                    Expr::Let(it) => self.visit_expr_mut(&mut it.expr),
                    other => self.visit_expr_mut(other),
                }
                self.block(&mut it.body, true);
            }
            Expr::Loop(it) => self.block(&mut it.body, true),
            Expr::Const(_) | Expr::Repeat(_) | Expr::Macro(_) => {}
            _ => visit_mut::visit_expr_mut(self, expr),
        }
    }
}

fn is_left_out(function: &str) -> bool {
    DESCRIPTIVE.contains(&function) || DEFECTIVE.contains(&function)
}

/// Returns whether an item is compiled only under a condition, such as tests.
fn is_conditional(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| it.path().is_ident("cfg") || it.path().is_ident("test"))
}

/// Returns the code of the condition that a function returns, unless it combines several; `None` if it returns none.
fn answer(signature: &Signature, block: &Block) -> Option<String> {
    let ReturnType::Type(_, of) = &signature.output else { return None };
    let Some(Stmt::Expr(tail, None)) = block.stmts.last() else { return None };
    let is_condition = of.to_token_stream().to_string() == "bool" && !is_chain(tail);
    let is_branch = matches!(tail, Expr::If(_) | Expr::Match(_) | Expr::Block(_));
    let text = shortened(tail);
    (is_condition && !is_branch && !is_switch(&text)).then_some(text)
}

/// Returns whether the expression combines conditions, whose mutants are those of its operands.
fn is_chain(expr: &Expr) -> bool {
    matches!(expr, Expr::Binary(ExprBinary { op: BinOp::And(_) | BinOp::Or(_), .. }))
}

fn contains_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(it) => contains_let(&it.left) || contains_let(&it.right),
        _ => false,
    }
}

fn is_switch(text: &str) -> bool {
    SWITCHES.iter().any(|it| text.contains(it))
}

fn is_one(expr: &Expr) -> bool {
    matches!(expr, Expr::Lit(it) if matches!(&it.lit, Lit::Int(it) if it.base10_digits() == "1"))
}

fn is_assignment(op: BinOp) -> bool {
    op.to_token_stream().to_string().ends_with('=')
        && !matches!(op, BinOp::Eq(_) | BinOp::Le(_) | BinOp::Ge(_) | BinOp::Ne(_))
}

/// Returns the code on one line, without most of the spaces between its tokens.
fn shortened(code: &impl ToTokens) -> String {
    let mut text = code.to_token_stream().to_string();
    for (spaced, tight) in [
        (" :: ", "::"),
        (" . ", "."),
        (" ()", "()"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" [", "["),
        ("[ ", "["),
        (" ]", "]"),
        (" ,", ","),
        (" ;", ";"),
        (" ?", "?"),
        ("& ", "&"),
        ("&&", "&& "),
        ("! ", "!"),
    ] {
        text = text.replace(spaced, tight);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mutants of a function body, as operators with the code that they change, and the mutated copy.
    fn mutants_of(body: &str) -> (Vec<(Operator, String)>, String) {
        let (text, sites) = mutate(&format!("fn f() {{ {body} }}"), 7, &BTreeSet::new()).unwrap();
        assert!(syn::parse_file(&text).is_ok(), "{text}");
        (sites.into_iter().map(|it| (it.operator, it.text)).collect(), text.replace(' ', ""))
    }

    fn only(operator: Operator, text: &str) -> Vec<(Operator, String)> {
        vec![(operator, text.to_owned())]
    }

    #[test]
    fn a_condition_is_dropped_or_never_holds() {
        let (found, text) = mutants_of("if x.is_new() { return; }");
        let condition = |it| (it, "x.is_new()".to_owned());
        assert_eq!(found, [Operator::ConditionDropped, Operator::NeverTaken].map(condition));
        assert!(text.contains("mutants::is_active(7u32)||(x.is_new())"), "{text}");
        assert!(text.contains("!::faultline_core::mutants::is_active(8u32)&&"), "{text}");
    }

    #[test]
    fn every_operand_of_a_condition_is_dropped() {
        let (found, _) = mutants_of("let y = a && (b || c);");
        let texts: Vec<&str> = found.iter().map(|it| it.1.as_str()).collect();
        assert_eq!(texts, ["a", "b", "c", "(b || c)"]);
        let (found, text) = mutants_of("if let Some(x) = y && x.is_new() { return; }");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(text.contains("&&letSome(x)=y&&"), "{text}");
    }

    #[test]
    fn a_query_of_a_defect_switch_is_not_mutated() {
        assert_eq!(mutants_of("if self.obeys(Rule::Drains) { return; }").0, []);
        let named = "let drains = self.obeys(Rule::Drains); let x = a && drains;";
        assert_eq!(mutants_of(named).0, only(Operator::ConditionDropped, "a"));
        assert_eq!(
            mutants_of("let x = a && self.obeys(Rule::Drains);").0,
            only(Operator::ConditionDropped, "a")
        );
    }

    #[test]
    fn code_that_only_defects_reach_is_not_mutated() {
        assert_eq!(mutants_of("if !self.obeys(Rule::Drains) { self.a(); }").0, []);
        assert_eq!(mutants_of("if a && !self.rules.drains { self.a(); }").0, []);
        assert_eq!(mutants_of("let x = self.is_sound() || a;").0, []);
        assert_eq!(mutants_of("let drains = self.obeys(Rule::Drains); let x = !drains && a < b;").0, []);
        let call = only(Operator::CallLeftOut, "self.b()");
        assert_eq!(mutants_of("if self.obeys(Rule::Drains) { self.b(); } else { self.a(); }").0, call);
        assert_eq!(mutants_of("rules.logs.saves = obeys(Rule::Saves);").0, []);
        let (_, sites) = mutate("fn add_to(&self) { self.a(); }", 0, &BTreeSet::new()).unwrap();
        assert_eq!(sites, []);
    }

    #[test]
    fn calls_and_assignments_are_left_out() {
        assert_eq!(mutants_of("self.log.clear();").0, only(Operator::CallLeftOut, "self.log.clear()"));
        assert_eq!(mutants_of("self.count = 0;").0, only(Operator::ValueNotReset, "self.count = 0"));
        assert_eq!(mutants_of("self.count += 2;").0, only(Operator::ValueNotReset, "self.count += 2"));
        assert_eq!(
            mutants_of("match x { A => self.a(), B => {} }").0,
            only(Operator::CallLeftOut, "self.a()")
        );
        // The first assignment of a variable declared without a value cannot be left out.
        assert_eq!(mutants_of("let x; x = 1;").0, []);
        // The value of a call that ends a function with a value is used.
        let (_, sites) = mutate("fn f() -> u8 { self.a() }", 0, &BTreeSet::new()).unwrap();
        assert_eq!(sites, []);
    }

    #[test]
    fn comparisons_numbers_loops_and_recipients_are_changed() {
        assert_eq!(mutants_of("let x = a < b;").0, only(Operator::ComparisonMoved, "a < b"));
        assert_eq!(mutants_of("let x = a + 1;").0, only(Operator::OneLeftOut, "a + 1"));
        assert_eq!(mutants_of("let x = a.max(b);").0, only(Operator::ExtremeSwapped, "a.max(b)"));
        assert_eq!(mutants_of("for x in y {}").0, only(Operator::FirstLeftOut, "for x in y"));
        assert_eq!(
            mutants_of("let x = y.filter(|it| it.z());").0,
            only(Operator::ConditionDropped, "it.z()")
        );
        let (found, _) = mutants_of("host.control(To::One(p), message);");
        let operators: Vec<Operator> = found.iter().map(|it| it.0).collect();
        assert_eq!(operators, [Operator::WrongRecipient, Operator::CallLeftOut]);
    }

    #[test]
    fn a_function_that_returns_a_condition_returns_each_constant() {
        let (_, sites) = mutate("fn f() -> bool { self.a() }", 0, &BTreeSet::new()).unwrap();
        let operators: Vec<Operator> = sites.iter().map(|it| it.operator).collect();
        assert_eq!(operators, [Operator::ConditionDropped, Operator::NeverTaken]);
    }

    #[test]
    fn constants_tests_and_descriptions_are_not_mutated() {
        for source in [
            "const A: bool = 1 < 2;",
            "const fn f() { a(); }",
            "#[cfg(test)] mod tests { fn f() { a(); } }",
            "impl X { fn fmt(&self) { a(); } }",
        ] {
            assert_eq!(mutate(source, 0, &BTreeSet::new()).unwrap().1, [], "{source}");
        }
    }

    #[test]
    fn an_unviable_mutant_keeps_its_number_but_is_not_in_the_copy() {
        let source = "fn f() { if a.b() { c(); } }";
        let (_, all) = mutate(source, 0, &BTreeSet::new()).unwrap();
        let (text, sites) = mutate(source, 0, &BTreeSet::from([1])).unwrap();
        assert_eq!(sites, all);
        assert!(text.contains("0u32") && !text.contains("1u32") && text.contains("2u32"), "{text}");
    }
}
