//! How an error reaches a person: what happened, the details, a hint, and a code with a page.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_core::{Diagnostic, ErrorClass};

/// An error on its way out of the program.
pub(crate) struct Failure {
    code: &'static str,
    class: ErrorClass,
    what: String,
    details: Vec<String>,
    hint: Option<String>,
}

impl Failure {
    /// What the process ends with: 2 if the command line or the configuration has to change, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.code.starts_with("TG-CONF-") { 2 } else { 1 }
    }
}

impl<E: Diagnostic> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            code: error.code(),
            class: error.class(),
            what: error.to_string(),
            details: details(&error),
            hint: error.hint().map(|hint| hint.into_owned()),
        }
    }
}

/// The causes, leaving out those that only repeat the line above.
fn details(error: &dyn Error) -> Vec<String> {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let mut lines: Vec<String> = vec![error.to_string()];
    for cause in causes.map(ToString::to_string) {
        if !lines.iter().any(|line| line.contains(&cause)) {
            lines.push(cause);
        }
    }
    lines.split_off(1)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.what)?;
        self.details.iter().try_for_each(|detail| writeln!(f, "  detail: {detail}"))?;
        if let Some(hint) = &self.hint {
            writeln!(f, "  hint: {hint}")?;
        }
        write!(f, "  code: {} ({}), see docs/errors/{}.md", self.code, who(self.class), self.code)
    }
}

const fn who(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Retry => "transient, try again",
        ErrorClass::Wait => "not ready yet",
        ErrorClass::Operator => "something outside has to change",
        ErrorClass::Corrupt => "broken input",
        ErrorClass::Bug => "a defect of tidegate",
    }
}

/// Errors of the command itself.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        /// The option that chooses another one.
        option: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// The folder for state cannot be made.
    #[error("cannot use the data directory {}", path.display())]
    DataDir {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The demo's journal of live transactions cannot be written.
    #[error("cannot write down a live transaction")]
    Journal(#[source] std::io::Error),
    /// A part of the pipeline ended although nobody asked it to.
    #[error("{part} ended by itself")]
    Ended { part: &'static str },
    /// The runtime or a signal handler cannot be set up.
    #[error("cannot start")]
    Start(#[source] std::io::Error),
    /// The pipeline makes no progress.
    #[error("{what} did not happen within {seconds} s")]
    TooSlow { what: &'static str, seconds: u64 },
    /// The search system refused a request of ours.
    #[error("the search system refused {call}")]
    Refused {
        call: &'static str,
        #[source]
        source: Box<tonic::Status>,
    },
    /// An answer or a row is not what its contract says.
    #[error("{what}")]
    Unexpected { what: String },
}

impl Diagnostic for CliError {
    fn code(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "TG-CLI-001",
            Self::DataDir { .. } => "TG-CLI-002",
            Self::Ended { .. } => "TG-CLI-003",
            Self::Start(_) => "TG-CLI-004",
            Self::TooSlow { .. } => "TG-CLI-005",
            Self::Refused { .. } => "TG-CLI-006",
            Self::Unexpected { .. } => "TG-CLI-007",
            Self::Journal(_) => "TG-CLI-008",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::Listen { .. } | Self::DataDir { .. } | Self::Journal(_) | Self::Start(_) => {
                ErrorClass::Operator
            }
            Self::TooSlow { .. } => ErrorClass::Wait,
            Self::Ended { .. } | Self::Refused { .. } | Self::Unexpected { .. } => ErrorClass::Bug,
        }
    }

    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        let hint = match self {
            Self::Listen { address, option, .. } => {
                let port = address.port();
                format!("another program may use port {port}; choose another with {option} 127.0.0.1:0")
            }
            Self::DataDir { .. } | Self::Journal(_) => {
                "free some space, or choose another folder with --data-dir".to_owned()
            }
            Self::Start(_) => "check the limits on threads and open files".to_owned(),
            Self::TooSlow { .. } => "run again with --log info to see which part waits".to_owned(),
            Self::Ended { .. } | Self::Refused { .. } | Self::Unexpected { .. } => {
                "run again with --log debug and report what it says".to_owned()
            }
        };
        Some(hint.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_what_happened_the_cause_the_hint_and_the_code() {
        let address: SocketAddr = "127.0.0.1:8471".parse().expect("an address");
        let source = std::io::Error::other("address in use");
        let text = Failure::from(CliError::Listen { address, option: "--listen", source }).to_string();
        let expected = "error: cannot listen on 127.0.0.1:8471
  detail: address in use
  hint: another program may use port 8471; choose another with --listen 127.0.0.1:0
  code: TG-CLI-001 (something outside has to change), see docs/errors/TG-CLI-001.md";
        assert_eq!(text, expected);
    }
}
