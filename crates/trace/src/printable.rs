//! Text from files and foreign programs, as it is printed.

/// Returns whether a character may reach a terminal. Control characters may not: they can change the terminal, and a line
/// break would forge a line of output. Neither may characters that are invisible or change the direction of the text, because
/// they make one name look like another.
pub fn is_printable(it: char) -> bool {
    let is_invisible = matches!(it,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !it.is_control() && !is_invisible
}

/// Returns a text that may come from a foreign program, with the characters replaced that [may not](is_printable) reach a
/// terminal.
pub fn printable(text: &str) -> String {
    text.replace(|it| !is_printable(it), "\u{fffd}")
}

/// Returns a word as a shell reads it: in quotes, if necessary.
pub fn shell_word(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "@%+=:,./_-".contains(it);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_replaced() {
        let text =
            "a\u{1b}[2J\n\t\u{7f}\u{9b}\u{202e}\u{200b}\u{2066}\u{feff}\u{2028}\u{e0041}µ的\u{300}\u{a0}";
        assert_eq!(printable(text), "a�[2J����������µ的\u{300}\u{a0}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("runs/tiny-1"), "runs/tiny-1");
        assert_eq!(shell_word("a b/c"), "'a b/c'");
        assert_eq!(shell_word("it's mine"), "'it'\\''s mine'");
        assert_eq!(shell_word("$(x)"), "'$(x)'");
        assert_eq!(shell_word(""), "''");
    }
}
