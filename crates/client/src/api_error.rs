//! Errors of requests to the API server, as a user reads them.

use std::error::Error;

/// Returns what the API server answered or, if it did not answer, why. kube's own text repeats the answer in Rust's
/// notation, and leaves out causes.
pub fn described(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        let known = [&status.message, &status.reason].into_iter().find(|it| !it.is_empty());
        return known.cloned().unwrap_or_else(|| format!("status {}", status.code));
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let next_text = next.to_string();
        // Many errors contain the text of their cause.
        if !text.contains(&next_text) {
            text += &format!(": {next_text}");
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use kube::core::Status;

    use super::*;

    #[test]
    fn an_answer_is_quoted_without_its_other_fields() {
        let refused = |message: &str, reason: &str| {
            let status = Status::failure(message, reason).with_code(403);
            described(&kube::Error::Api(Box::new(status)))
        };
        assert_eq!(refused("pods is forbidden", "Forbidden"), "pods is forbidden");
        assert_eq!(refused("", "Forbidden"), "Forbidden");
        assert_eq!(refused("", ""), "status 403");
    }

    #[test]
    fn causes_are_named_once() {
        let cause = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
        let error = kube::Error::ReadEvents(cause);
        assert_eq!(described(&error), "Error reading events stream: connection refused");
    }
}
