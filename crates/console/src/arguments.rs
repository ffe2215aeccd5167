//! Options that several commands share. Their doc comments are the help text.

use std::num::NonZero;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable text.
    Text,
    /// One JSON object.
    Json,
}

impl Format {
    /// Returns the value of `--format`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
        }
    }
}

/// Options for the summary.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArguments {
    /// Choose the format of the summary
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Print only the verdict and its reasons, without the live view
    #[arg(short, long)]
    pub quiet: bool,
    /// Print all properties, including those that hold, and warnings; if given twice, also log to standard error
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    pub verbose: u8,
}

impl OutputArguments {
    /// Options that print nothing during a run.
    pub const SILENT: OutputArguments = OutputArguments { format: Format::Text, quiet: true, verbose: 0 };
}

/// Kubernetes cluster and namespace.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubernetesArguments {
    /// Use this namespace instead of the one in the kubeconfig's context
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Use this context of the kubeconfig instead of the current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Fetch the record of a run on Kubernetes, for `check`, `explain` and `report`.
///
/// The supervisor's pod keeps the record until the federation is deleted. The API server forwards a port to the pod, so
/// no port needs to be exposed. Requires, in the federation's namespace, permission to get federations, the secret
/// NAME-reader and pods/portforward, and to create pods/portforward. Prints the directory of the record.
#[derive(Debug, Args)]
pub struct FetchArguments {
    /// Select the federation, in the notation of kubectl
    #[arg(value_name = "federation/NAME")]
    pub federation: String,
    /// Write the record to DIR instead of a new directory in `faultline-runs`
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Kubernetes cluster.
    #[command(flatten)]
    pub cluster: KubernetesArguments,
}

/// Returns a parser for whole numbers in `range`. Its error names the range.
pub fn number<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let wrong = || format!("write a whole number from {} to {}", range.start(), range.end());
        let value = text.parse().ok().filter(|it| range.contains(it)).ok_or_else(wrong)?;
        T::try_from(value).map_err(|_| wrong())
    }
}

/// Parses a number of nodes.
///
/// # Errors
///
/// Fails if the text is not a number of nodes. The error names the range.
///
/// # Panics
///
/// Never panics: the range starts at 1.
pub fn nodes(text: &str) -> Result<NonZero<u32>, String> {
    let nodes = number::<u32>(1..=u32::MAX.into())(text)?;
    Ok(NonZero::new(nodes).expect("the range starts at 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_number_out_of_range_names_the_range() {
        assert_eq!(number::<u64>(0..=u64::MAX)("42"), Ok(42));
        let wrong = "write a whole number from 0 to 18446744073709551615".to_owned();
        assert_eq!(number::<u64>(0..=u64::MAX)("-1"), Err(wrong));
        assert_eq!(number::<u8>(0..=100)("101"), Err("write a whole number from 0 to 100".to_owned()));
        assert!(nodes("0").is_err() && nodes("4294967296").is_err());
    }
}
