//! The configuration file of `tidegate run`.

mod reference;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tidegate_adapter::{AdapterOptions, BatchLimits, DispatchLimits, DocIdColumn, OptionsError, Unadmitted};
use tidegate_core::{Diagnostic, ErrorClass, KeyspaceId, StartTs};

use crate::units::{Size, Span};

/// The whole file. A field that is not here is refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    data_dir: Option<PathBuf>,
    start_ts: Option<u64>,
    upstream: Upstream,
    gateway: Gateway,
    #[serde(default)]
    tables: Tables,
    #[serde(default)]
    batch: Batch,
    #[serde(default)]
    dispatch: Dispatch,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Upstream {
    pd: Vec<String>,
    keyspace: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gateway {
    endpoint: String,
    namespace: Option<String>,
    client_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tables {
    include: Option<Vec<String>>,
    document_id: BTreeMap<String, String>,
    unadmitted: Option<UnadmittedName>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum UnadmittedName {
    Skip,
    Reject,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Batch {
    entries_max: Option<usize>,
    bytes_max: Option<Size>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Dispatch {
    partition_in_flight_max: Option<usize>,
    in_flight_max: Option<usize>,
    buffered_bytes_max: Option<Size>,
    backoff_min: Option<Span>,
    backoff_max: Option<Span>,
    drain_deadline: Option<Span>,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cannot read the configuration {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the configuration {} is wrong at line {line}, field `{field}`", path.display())]
    Parse {
        path: PathBuf,
        line: usize,
        field: String,
        #[source]
        source: ParseDetail,
    },
    #[error("the configuration {} is wrong in field `{field}`", path.display())]
    Value {
        path: PathBuf,
        field: &'static str,
        #[source]
        source: OptionsError,
    },
}

/// What the parser says, on one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ParseDetail(String);

impl Diagnostic for ConfigError {
    fn code(&self) -> &'static str {
        match self {
            Self::Read { .. } => "TG-CONF-002",
            Self::Parse { .. } => "TG-CONF-003",
            Self::Value { .. } => "TG-CONF-004",
        }
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Operator
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::Read { .. } => "check the path behind -c".into(),
            _ => {
                "docs/operate/configuration.md lists all fields; --check tries a file without starting".into()
            }
        })
    }
}

impl Config {
    /// Reads the file at `path` into what the adapter is started with.
    pub(crate) fn load(path: &Path) -> Result<AdapterOptions, ConfigError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<AdapterOptions, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let (line, field) = position(text, error.span().map_or(0, |span| span.start), error.message());
            let source = ParseDetail(error.message().replace('\n', " "));
            ConfigError::Parse { path: path.to_owned(), line, field, source }
        })?;
        let options = config.into_options();
        options.validate().map_err(|source| ConfigError::Value {
            path: path.to_owned(),
            field: field_of(&source),
            source,
        })?;
        Ok(options)
    }

    fn into_options(self) -> AdapterOptions {
        let mut options = AdapterOptions::new(self.upstream.pd, self.gateway.endpoint);
        options.state_dir = self.data_dir;
        options.start_ts = self.start_ts.map(StartTs::new);
        options.keyspace = self.upstream.keyspace.map(KeyspaceId);
        set(&mut options.namespace, self.gateway.namespace);
        set(&mut options.client_id, self.gateway.client_id);
        set(&mut options.tables, self.tables.include);
        let ids = self.tables.document_id.into_iter();
        options.doc_ids = ids.map(|(table, column)| DocIdColumn { table, column }).collect();
        options.unadmitted = match self.tables.unadmitted {
            Some(UnadmittedName::Reject) => Unadmitted::Reject,
            Some(UnadmittedName::Skip) | None => Unadmitted::Skip,
        };
        self.batch.apply(&mut options.batch);
        self.dispatch.apply(&mut options.dispatch);
        options
    }
}

impl Batch {
    fn apply(self, limits: &mut BatchLimits) {
        set(&mut limits.entries_max, self.entries_max);
        set(&mut limits.bytes_max, self.bytes_max.map(|Size(bytes)| bytes));
    }
}

impl Dispatch {
    fn apply(self, limits: &mut DispatchLimits) {
        set(&mut limits.partition_in_flight_max, self.partition_in_flight_max);
        set(&mut limits.in_flight_max, self.in_flight_max);
        set(&mut limits.buffered_bytes_max, self.buffered_bytes_max.map(|Size(bytes)| bytes));
        set(&mut limits.backoff_min, self.backoff_min.map(|Span(span)| span));
        set(&mut limits.backoff_max, self.backoff_max.map(|Span(span)| span));
        set(&mut limits.drain_deadline, self.drain_deadline.map(|Span(span)| span));
    }
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

/// Line and full field name at a byte offset of the file: the section above it, and the key on its line. For
/// a field that is missing or unknown the parser's own message knows the name.
fn position(text: &str, offset: usize, message: &str) -> (usize, String) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let header = |line: &str| {
        let inner = line.trim().strip_prefix('[')?.split(']').next()?;
        Some(inner.to_owned())
    };
    let lines: Vec<&str> = text.lines().take(line).collect();
    let section = lines.iter().rev().find_map(|line| header(line));
    let here = lines.last().and_then(|line| line.split_once('=')).map(|(key, _)| key.trim().to_owned());
    let named = message.split('`').nth(1).filter(|_| message.contains("field")).map(str::to_owned);
    let at_header = lines.last().is_some_and(|line| header(line).is_some());
    if at_header && section.as_deref().and_then(|path| path.rsplit('.').next()) == named.as_deref() {
        return (line, section.unwrap_or_default());
    }
    let parts = [section, named.or(here)];
    let name: Vec<String> = parts.into_iter().flatten().collect();
    (line, name.join("."))
}

/// The file's name of a field that the options refuse.
fn field_of(error: &OptionsError) -> &'static str {
    match error {
        OptionsError::Tables(_) => "tables.include",
        OptionsError::Field { field, .. } => match *field {
            "pd_endpoints" => "upstream.pd",
            "gateway" => "gateway.endpoint",
            "namespace" => "gateway.namespace",
            "client_id" => "gateway.client_id",
            "doc_ids" => "tables.document_id",
            same => same,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::failure::Failure;

    const SMALLEST: &str =
        "[upstream]\npd = [\"127.0.0.1:2379\"]\n[gateway]\nendpoint = \"127.0.0.1:7401\"\n";

    fn parse(text: &str) -> Result<AdapterOptions, ConfigError> {
        Config::parse(Path::new("t.toml"), text)
    }

    fn check_refused(text: &str, expect: &str) {
        let refused = Failure::from(parse(text).expect_err(expect)).to_string();
        assert!(refused.contains(expect), "{refused}\n  should name {expect}");
    }

    #[test]
    fn the_smallest_file_keeps_every_default() {
        let options = parse(SMALLEST).expect("upstream and gateway are enough");
        assert_eq!(options.tables, ["*.*"]);
        assert_eq!(options.batch, BatchLimits::default());
        assert_eq!(options.dispatch, DispatchLimits::default());
    }

    #[test]
    fn a_section_that_does_not_exist_is_named_once() {
        let refused = |more: &str| {
            Failure::from(parse(&format!("{SMALLEST}{more}")).expect_err("an unknown section")).to_string()
        };
        assert!(refused("[tabels]\n").contains("tabels"));
        assert!(!refused("[tabels]\n").contains("tabels.tabels"));
        assert!(refused("[upstream.tls]\n").contains("upstream.tls"));
        assert!(!refused("[upstream.tls]\n").contains("upstream.tls.tls"));
    }

    #[test]
    fn sizes_and_durations_are_read_as_people_write_them() {
        let more = "[batch]\nbytes_max = \"2MiB\"\n[dispatch]\nbackoff_min = \"250ms\"\n";
        let options = parse(&format!("{SMALLEST}{more}")).expect("a sound file");
        assert_eq!(options.batch.bytes_max, 2 << 20);
        assert_eq!(options.dispatch.backoff_min, Duration::from_millis(250));
    }

    #[test]
    fn unknown_missing_and_mistyped_fields_are_named() {
        check_refused("[upstream]\npdd = []\n", "line 2, field `upstream.pdd`");
        check_refused("[upstream]\n[gateway]\nendpoint = \"x\"\n", "field `upstream.pd`");
        check_refused(&SMALLEST.replace("[\"127.0.0.1:2379\"]", "5"), "line 2, field `upstream.pd`");
        check_refused(
            &format!("{SMALLEST}[batch]\nbytes_max = \"2mb\"\n"),
            "line 6, field `batch.bytes_max`",
        );
        check_refused(&format!("{SMALLEST}[cache]\nx = 1\n"), "cache");
    }

    #[test]
    fn values_that_cannot_work_are_named_as_the_file_names_them() {
        check_refused(&SMALLEST.replace("\"127.0.0.1:2379\"", ""), "field `upstream.pd`");
        check_refused(&format!("{SMALLEST}[tables]\ninclude = [\"nodot\"]\n"), "field `tables.include`");
        check_refused(&format!("{SMALLEST}[batch]\nentries_max = 0\n"), "field `batch.entries_max`");
    }
}
