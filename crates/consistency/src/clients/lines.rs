//! The lines that ask a client for an operation, and its replies.

use std::sync::Arc;

use faultline_core::operation::{Answer, Call, Step};
use serde_json::{Map, Value, json};

/// What a client replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer of the system.
    Ok(Answer),
    /// The operation had no effect, and never will, for this reason.
    Fail(Arc<str>),
    /// It is unknown, for this reason, whether the operation takes effect.
    Unknown(Arc<str>),
}

/// Returns the line that asks for an operation, with its end.
pub fn line_of(number: u64, call: &Call) -> String {
    let name = |it: &faultline_core::operation::Key| it.to_string();
    let mut line = match call {
        Call::Read(key) => json!({ "key": name(key) }),
        Call::Write(key, value) | Call::Send(key, value) => json!({ "key": name(key), "value": value }),
        Call::Cas(key, from, to) => json!({ "key": name(key), "from": from, "to": to }),
        Call::Txn(steps) => {
            let steps = steps.iter().map(|step| match step {
                Step::Read(key) => json!(["r", name(key)]),
                Step::Append(key, value) => json!(["append", name(key), value]),
            });
            json!({ "do": steps.collect::<Vec<_>>() })
        }
        Call::Add(value) | Call::Enqueue(value) => json!({ "value": value }),
        Call::Poll(key, from) => json!({ "key": name(key), "from": from }),
        Call::Transfer(from, to, amount) => json!({ "from": from, "to": to, "amount": amount }),
        Call::ReadAll | Call::Dequeue | Call::Next | Call::Acquire | Call::Release => json!({}),
    };
    line["n"] = number.into();
    line["event"] = call.kind().into();
    format!("{line}\n")
}

/// Reads the reply to an operation under a model.
///
/// # Errors
///
/// Returns how the reply breaks the contract, as a predicate whose subject is the client.
pub fn reply_of(model: &str, number: u64, call: &Call, line: &[u8]) -> Result<Reply, String> {
    let shown = || String::from_utf8_lossy(&line[..line.len().min(120)]).trim_end().to_owned();
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else {
        return Err(format!("replied with no JSON object: {}", shown()));
    };
    if fields.remove("n").and_then(|it| it.as_u64()) != Some(number) {
        return Err(format!("replied without `\"n\":{number}`: {}", shown()));
    }
    let text = |name: &str, fields: &mut Map<String, Value>| match fields.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(Arc::<str>::from(text))),
        Some(_) => Err(format!("replied with `{name}` that is no text: {}", shown())),
    };
    let (fail, unknown) = (text("fail", &mut fields)?, text("unknown", &mut fields)?);
    match (fields.remove("ok"), fail, unknown) {
        (Some(ok), None, None) => match answer_of(model, call, ok) {
            Some(answer) => Ok(Reply::Ok(answer)),
            None => Err(format!(
                "answered `{}` with something else than {}: {}",
                call.kind(),
                expected(model, call),
                shown()
            )),
        },
        (None, Some(why), None) => Ok(Reply::Fail(why)),
        (None, None, Some(why)) => Ok(Reply::Unknown(why)),
        _ => Err(format!("replied without exactly one of `ok`, `fail` and `unknown`: {}", shown())),
    }
}

/// Returns what an operation is answered with.
fn expected(model: &str, call: &Call) -> &'static str {
    match call {
        Call::Read(_) => "an integer or null",
        Call::Cas(..) | Call::Transfer(..) => "true or false",
        Call::Txn(_) => "the list of its steps, with what each `r` read",
        Call::ReadAll if model == "counter" => "an integer",
        Call::ReadAll => "a list of integers",
        Call::Dequeue => "an integer, or null for an empty queue",
        Call::Send(..) => "an integer, the offset",
        Call::Poll(..) => "a list of pairs `[offset, value]`",
        Call::Next => "an integer or a text",
        Call::Acquire => "null, or an integer, a fencing token",
        Call::Write(..) | Call::Add(_) | Call::Enqueue(_) | Call::Release => "null",
    }
}

fn answer_of(model: &str, call: &Call, ok: Value) -> Option<Answer> {
    // The judge represents texts and the absence of a value by the numbers beyond.
    let integer = |it: &Value| it.as_i64().filter(|it| it.unsigned_abs() <= 1 << 62);
    let number = |it: &Value| integer(it).map(Answer::Number);
    let null = |it: &Value| it.is_null().then_some(Answer::Null);
    let integers = |it: &Value| it.as_array()?.iter().map(integer).collect::<Option<Box<[i64]>>>();
    match call {
        Call::Read(_) | Call::Dequeue | Call::Acquire => null(&ok).or_else(|| number(&ok)),
        Call::Write(..) | Call::Add(_) | Call::Enqueue(_) | Call::Release => null(&ok),
        Call::Cas(..) | Call::Transfer(..) => ok.as_bool().map(Answer::Flag),
        Call::Send(..) => number(&ok),
        Call::ReadAll if model == "counter" => number(&ok),
        Call::ReadAll => integers(&ok).map(Answer::Numbers),
        Call::Next => number(&ok).or_else(|| Some(Answer::Text(ok.as_str()?.into()))),
        Call::Poll(..) => {
            let entry = |it: &Value| match it.as_array()?.as_slice() {
                [offset, value] => Some((integer(offset)?, integer(value)?)),
                _ => None,
            };
            ok.as_array()?.iter().map(entry).collect::<Option<_>>().map(Answer::Entries)
        }
        Call::Txn(steps) => {
            let replied = ok.as_array().filter(|it| it.len() == steps.len())?;
            let mut lists = Vec::new();
            for (step, replied) in steps.iter().zip(replied) {
                match (step, replied.as_array()?.as_slice()) {
                    (Step::Read(key), [f, name, list]) => {
                        let is_same = f == "r" && *name == key.to_string();
                        lists.push(integers(list).filter(|_| is_same)?);
                    }
                    (Step::Append(key, value), [f, name, it]) => {
                        let is_same =
                            f == "append" && *name == key.to_string() && integer(it) == Some(*value);
                        is_same.then_some(())?;
                    }
                    _ => return None,
                }
            }
            Some(Answer::Lists(lists.into()))
        }
    }
}
