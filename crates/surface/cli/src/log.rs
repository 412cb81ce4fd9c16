//! Logging to stderr, so that stdout carries results only.

use std::borrow::Cow;
use std::io::IsTerminal;

use tidegate_core::{Diagnostic, ErrorClass};
use tracing_subscriber::EnvFilter;

/// The value of `--log` cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("--log {filter:?} cannot be understood")]
pub(crate) struct LogError {
    filter: String,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

impl Diagnostic for LogError {
    fn code(&self) -> &'static str {
        "TG-CONF-001"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Operator
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("a level (error, warn, info, debug) or pairs such as warn,tidegate_puller=debug".into())
    }
}

/// Starts logging; `filter` is the value of `--log`.
pub(crate) fn start(filter: &str, json: bool) -> Result<(), LogError> {
    let parsed = EnvFilter::builder().parse(filter);
    let parsed = parsed.map_err(|source| LogError { filter: filter.to_owned(), source })?;
    let ansi = std::io::stderr().is_terminal();
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(ansi).with_env_filter(parsed);
    if json {
        logs.json().init()
    } else {
        logs.compact().init()
    }
    Ok(())
}
