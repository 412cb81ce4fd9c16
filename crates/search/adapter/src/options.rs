//! What an adapter is started with, and what makes it refuse to start.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tidegate_contract::limits::{
    BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, CLIENT_ID_CHARS_MAX, NAMESPACE_CHARS_MAX,
};
use tidegate_core::{KeyspaceId, StartTs};
use tidegate_mini::ConfigError;
use tidegate_mini::TableFilter;

/// Everything an adapter needs to know. Build with [`AdapterOptions::new`] and change fields where the
/// defaults do not fit.
#[derive(Clone, Debug)]
pub struct AdapterOptions {
    /// PD addresses, `host:port` each.
    pub pd_endpoints: Vec<String>,
    /// The ingest gateway and catalogue, `host:port` or `http://host:port`.
    pub gateway: String,
    /// Where checkpoints and the schema history are kept. `None` keeps them in memory: a restart then begins
    /// at [`AdapterOptions::start_ts`] again.
    pub state_dir: Option<PathBuf>,
    /// `db.table` patterns of the tables to follow; see [`TableFilter`].
    pub tables: Vec<String>,
    /// Namespace of the collections.
    pub namespace: String,
    /// Who this adapter is: stable over restarts, unique among adapters that share a gateway.
    pub client_id: String,
    /// The keyspace on an API V2 cluster; `None` on a classic one.
    pub keyspace: Option<KeyspaceId>,
    /// Where a first start begins: changes committed after it are delivered. `None` = now. A start that
    /// finds a checkpoint ignores it.
    pub start_ts: Option<StartTs>,
    /// Whether a first start reads the rows that tables hold already, as of its start. Otherwise only later
    /// changes are delivered.
    pub initial_load: bool,
    /// Which column is the document id, for tables whose key does not tell.
    pub doc_ids: Vec<DocIdColumn>,
    /// What to do with tables that have no admissible document id.
    pub unadmitted: Unadmitted,
    /// How columns are searched as text, beyond the defaults.
    pub text: Vec<TextHint>,
    /// When a batch is full.
    pub batch: BatchLimits,
    /// Bounds of what is on its way.
    pub dispatch: DispatchLimits,
}

/// A configured document id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocIdColumn {
    /// `db.table`.
    pub table: String,
    /// An unsigned integer column that is never NULL and unique.
    pub column: String,
}

/// What to do with a table whose rows have no unsigned 64-bit identity (`spec/cdc-adapter.md` §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unadmitted {
    /// Leave the table out; its rows are counted and shown in the status.
    #[default]
    Skip,
    /// Stop with an error.
    Reject,
}

/// How one column is searched as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextHint {
    /// `db.table.column`.
    pub column: String,
    /// BCP 47 language; empty = decide by script.
    pub language: String,
    /// For JSON columns: language by member.
    pub path_languages: Vec<(String, String)>,
    /// The whole value is one word.
    pub keyword: bool,
}

/// When a batch is full. A progress mark or a barrier closes it earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Entries; 1 to [`BATCH_ENTRIES_MAX`].
    pub entries_max: usize,
    /// Encoded bytes; a single larger row still travels, in a batch of its own.
    pub bytes_max: usize,
}

impl Default for BatchLimits {
    /// A thousand small rows amortise the gateway's fsync; a MiB keeps the pipe moving with large ones.
    fn default() -> Self {
        Self { entries_max: 1_000, bytes_max: 1 << 20 }
    }
}

/// Bounds of what is on its way to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchLimits {
    /// Unanswered batches of one partition.
    pub partition_in_flight_max: usize,
    /// Unanswered batches of all partitions.
    pub in_flight_max: usize,
    /// Bytes of rows held in the adapter, sealed and not yet acknowledged. Above it the source is slowed.
    pub buffered_bytes_max: usize,
    /// First pause before a retry; it doubles up to `backoff_max`.
    pub backoff_min: Duration,
    /// Longest pause before a retry.
    pub backoff_max: Duration,
    /// How long a stop waits for the acknowledgement of what was sent.
    pub drain_deadline: Duration,
}

impl Default for DispatchLimits {
    /// Four batches hide a round trip and an fsync; sixty-four keep many small partitions
    /// busy. Mutations take several times their encoded size in memory.
    fn default() -> Self {
        Self {
            partition_in_flight_max: 4,
            in_flight_max: 64,
            buffered_bytes_max: 32 << 20,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            drain_deadline: Duration::from_secs(10),
        }
    }
}

impl AdapterOptions {
    /// The defaults around what has none: where to read and where to write. All user tables.
    pub fn new(pd_endpoints: Vec<String>, gateway: impl Into<String>) -> Self {
        Self {
            pd_endpoints,
            gateway: gateway.into(),
            state_dir: None,
            tables: vec!["*.*".to_owned()],
            namespace: "default".to_owned(),
            client_id: "tidegate".to_owned(),
            keyspace: None,
            start_ts: None,
            initial_load: true,
            doc_ids: Vec::new(),
            unadmitted: Unadmitted::default(),
            text: Vec::new(),
            batch: BatchLimits::default(),
            dispatch: DispatchLimits::default(),
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that cannot work, by name.
    pub fn validate(&self) -> Result<(), OptionsError> {
        if self.pd_endpoints.is_empty() || self.pd_endpoints.iter().any(String::is_empty) {
            return Err(field("pd_endpoints", "must name at least one address and no empty one"));
        }
        if self.gateway.is_empty() {
            return Err(field("gateway", "must not be empty"));
        }
        if self.pd_endpoints.iter().any(|endpoint| asks_for_another_scheme(endpoint)) {
            return Err(field("pd_endpoints", "must be http or without a scheme; TLS does not exist yet"));
        }
        if asks_for_another_scheme(&self.gateway) {
            return Err(field("gateway", "must be http or without a scheme; TLS does not exist yet"));
        }
        TableFilter::parse(&self.tables).map_err(OptionsError::Tables)?;
        check_len("namespace", &self.namespace, NAMESPACE_CHARS_MAX)?;
        check_len("client_id", &self.client_id, CLIENT_ID_CHARS_MAX)?;
        if !(1..=BATCH_ENTRIES_MAX).contains(&self.batch.entries_max) {
            return Err(field("batch.entries_max", "must be between 1 and 10000"));
        }
        if !(1..=BATCH_BYTES_MAX / 2).contains(&self.batch.bytes_max) {
            return Err(field("batch.bytes_max", "must be between 1 byte and 4 MiB"));
        }
        self.dispatch.validate()?;
        self.validate_names()
    }

    fn validate_names(&self) -> Result<(), OptionsError> {
        if self.doc_ids.iter().any(|d| d.table.split('.').count() != 2 || d.column.is_empty()) {
            return Err(field("doc_ids", "must name a table as db.table and a column"));
        }
        if self.text.iter().any(|t| t.column.split('.').count() != 3) {
            return Err(field("text", "must name each column as db.table.column"));
        }
        Ok(())
    }
}

impl DispatchLimits {
    fn validate(&self) -> Result<(), OptionsError> {
        if self.partition_in_flight_max == 0 {
            return Err(field("dispatch.partition_in_flight_max", "must be above 0"));
        }
        if self.in_flight_max < self.partition_in_flight_max {
            return Err(field("dispatch.in_flight_max", "must not be below partition_in_flight_max"));
        }
        if self.buffered_bytes_max < BATCH_BYTES_MAX {
            return Err(field("dispatch.buffered_bytes_max", "must hold at least one batch of 8 MiB"));
        }
        if self.backoff_min.is_zero() || self.backoff_max < self.backoff_min {
            return Err(field("dispatch.backoff_max", "must not be below backoff_min, which is above 0"));
        }
        Ok(())
    }
}

/// Anything but plain http must be refused: sending rows in the clear where TLS was asked for is worse than
/// an error.
fn asks_for_another_scheme(endpoint: &str) -> bool {
    endpoint.split_once("://").is_some_and(|(scheme, _)| scheme != "http")
}

fn check_len(name: &'static str, value: &str, chars_max: usize) -> Result<(), OptionsError> {
    if value.is_empty() || value.chars().count() > chars_max {
        return Err(field(name, "must not be empty or longer than the contract allows"));
    }
    Ok(())
}

fn field(field: &'static str, detail: &'static str) -> OptionsError {
    OptionsError::Field { field, detail }
}

/// Options that cannot work. Every message names its field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionsError {
    /// A field has a value that cannot work.
    #[error("{field} {detail}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        detail: &'static str,
    },
    /// The table patterns.
    #[error(transparent)]
    Tables(ConfigError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut AdapterOptions), named: &str) {
        let mut options = AdapterOptions::new(vec!["127.0.0.1:2379".to_owned()], "127.0.0.1:7700");
        change(&mut options);
        let error = options.validate().expect_err(named).to_string();
        assert!(error.starts_with(named), "{error}");
    }

    #[test]
    fn the_defaults_work() {
        let options = AdapterOptions::new(vec!["127.0.0.1:2379".to_owned()], "127.0.0.1:7700");
        assert_eq!(options.validate(), Ok(()));
    }

    #[test]
    fn a_mistake_names_its_field() {
        check(|o| o.pd_endpoints.clear(), "pd_endpoints");
        check(|o| o.gateway.clear(), "gateway");
        check(|o| o.gateway = "https://search:7401".to_owned(), "gateway");
        check(|o| o.pd_endpoints = vec!["https://pd:2379".to_owned()], "pd_endpoints");
        check(|o| o.tables = vec!["nodot".to_owned()], "tables");
        check(|o| o.namespace.clear(), "namespace");
        check(|o| o.client_id = "c".repeat(257), "client_id");
        check(|o| o.batch.entries_max = 0, "batch.entries_max");
        check(|o| o.batch.bytes_max = 5 << 20, "batch.bytes_max");
        check(|o| o.dispatch.in_flight_max = 1, "dispatch.in_flight_max");
        check(|o| o.dispatch.buffered_bytes_max = 1, "dispatch.buffered_bytes_max");
        check(|o| o.dispatch.backoff_min = Duration::ZERO, "dispatch.backoff_max");
        let no_table = DocIdColumn { table: "emoji".to_owned(), column: "id".to_owned() };
        check(|o| o.doc_ids.push(no_table), "doc_ids");
        check(|o| o.text.push(TextHint::default()), "text");
    }
}
