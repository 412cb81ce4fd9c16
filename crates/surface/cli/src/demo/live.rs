//! Small live changes, as an application on TiDB would make them: emoji are used, remarks come and go.

use std::borrow::Cow;
use std::sync::Arc;

use tidegate_codec::encode::encode_row;
use tidegate_codec::key::{Handle, RESERVED_ID_MAX, parse_record_key, record_key};
use tidegate_codec::row::TableLayout;
use tidegate_codec::time::Time;
use tidegate_codec::value::Value;
use tidegate_core::{TableId, Ts};
use tidegate_playground::{Playground, Write};
use tidegate_puller::kv::{KvPair, SnapshotReader};
use tidegate_testkit::History;

use super::journal::Journal;
use super::upstream::{self, Table};
use super::{EMOJI, SCHEMA};
use crate::failure::{CliError, Failure};

const REMARK: &str = "demo.remark";
/// Emoji that people use again and again.
const POPULAR: &[i64] = &[1, 2, 3, 3677, 3681, 3689, 4379, 4393];
const REMARKS: &[&str] = &[
    "the tide comes in at noon",
    "ein Hund bellt am Hafen",
    "猫が窓辺で眠っている",
    "今天的飞机晚点了",
    "a crab on the beach, sideways as ever",
    "das Schiff liegt im Hafen",
    "every change arrives once",
];
/// So many ids below the reserved maximum belong to TiDB's own tables.
const SYSTEM_TABLES: i64 = 1000;
/// So many remarks are kept; older ones are deleted.
const REMARKS_KEPT: usize = 20;

/// Makes one small transaction at a time.
pub(crate) struct Writer {
    playground: Arc<Playground>,
    reader: SnapshotReader,
    journal: Option<Journal>,
    random: fastrand::Rng,
    tables: Option<(Table, Table)>,
}

impl Writer {
    pub(crate) fn new(playground: Arc<Playground>, reader: SnapshotReader, journal: Option<Journal>) -> Self {
        Self { playground, reader, journal, random: fastrand::Rng::new(), tables: None }
    }

    /// Commits one transaction, computed from the state at `now`.
    pub(crate) async fn change(&mut self, now: Ts) -> Result<(), Failure> {
        let (emoji, remark) = self.tables(now).await?;
        let writes = if self.random.u8(..5) == 0 {
            self.change_remarks(&remark, now).await?
        } else {
            self.use_emoji(&emoji, now).await?
        };
        self.commit(writes)
    }

    /// Commits what an earlier process may not have come to; nothing if there is nothing.
    pub(crate) fn finish(&mut self, in_doubt: Vec<Write>) -> Result<(), Failure> {
        if in_doubt.is_empty() { Ok(()) } else { self.commit(in_doubt) }
    }

    /// Commits `writes`, after they are written down where the demo keeps its state.
    fn commit(&mut self, writes: Vec<Write>) -> Result<(), Failure> {
        let Some(journal) = &mut self.journal else {
            self.playground.commit(writes)?;
            return Ok(());
        };
        if journal.has_room() {
            journal.intend(&writes).map_err(CliError::Journal)?;
            let commit_ts = self.playground.commit(writes)?;
            journal.committed(commit_ts).map_err(CliError::Journal)?;
        }
        Ok(())
    }

    /// The tables' definitions; nothing in the demo changes them once the recording is over.
    async fn tables(&mut self, now: Ts) -> Result<(Table, Table), Failure> {
        if let Some(known) = &self.tables {
            return Ok(known.clone());
        }
        let tables = upstream::tables(&self.reader, SCHEMA, now).await?;
        let named = |name: &str| {
            let found = tables.iter().find(|table| table.name == name).cloned();
            found.ok_or_else(|| CliError::Unexpected { what: format!("the upstream has no table {name}") })
        };
        let found = (named(EMOJI)?, named(REMARK)?);
        self.tables = Some(found.clone());
        Ok(found)
    }

    /// `update emoji set uses = uses + n, updated_at = now(6) where id = ?`
    async fn use_emoji(&mut self, table: &Table, now: Ts) -> Result<Vec<Write>, Failure> {
        let layout = &table.layout;
        let key = record_key(None, layout.table().id, &Handle::Int(self.popular()));
        let Some(value) = self.reader.get(&key, now).await? else { return Ok(Vec::new()) };
        let row =
            layout.row(parse_record_key(&key).map_err(unexpected)?.handle, &value).map_err(unexpected)?;
        let added = self.random.u64(1..=5);
        let mut values = Vec::new();
        for (index, column) in layout.table().columns.iter().enumerate() {
            let old = row.column(index).map_err(unexpected)?;
            values.push(match (column.name.as_str(), old) {
                ("uses", Value::UInt(uses)) => Value::UInt(uses.saturating_add(added)),
                ("updated_at", _) => Value::Timestamp(clock(now, 6)?),
                (_, old) => old,
            });
        }
        Ok(vec![put(layout, &values)?])
    }

    fn popular(&mut self) -> i64 {
        *self.random.choice(POPULAR).unwrap_or(&1)
    }

    /// Inserts a remark, and deletes the oldest when there are enough, in one transaction.
    async fn change_remarks(&mut self, table: &Table, now: Ts) -> Result<Vec<Write>, Failure> {
        let layout = &table.layout;
        let present = upstream::rows(&self.reader, layout.table().id, now).await?;
        let body = *self.random.choice(REMARKS).unwrap_or(&"");
        let values = [
            Value::UInt(last_id(&present)?.saturating_add(1)),
            Value::Text(Cow::Borrowed(body)),
            Value::DateTime(clock(now, 3)?),
        ];
        let mut writes = vec![put(layout, &values)?];
        if let Some(oldest) = present.first().filter(|_| present.len() >= REMARKS_KEPT) {
            writes.push(Write::delete(oldest.key.clone()));
        }
        Ok(writes)
    }
}

fn put(layout: &TableLayout, values: &[Value<'_>]) -> Result<Write, Failure> {
    let row = encode_row(layout, values, None, false)?;
    Ok(Write::put(row.key(None, layout.table().id), row.value))
}

/// The largest id of rows that are in key order.
fn last_id(rows: &[KvPair]) -> Result<u64, CliError> {
    let Some(last) = rows.last() else { return Ok(0) };
    match parse_record_key(&last.key).map_err(unexpected)?.handle {
        Handle::Int(id) => u64::try_from(id).map_err(unexpected),
        Handle::Common(_) => Ok(0),
    }
}

/// The time of day in a column with `fsp` fractional digits.
fn clock(ts: Ts, fsp: u8) -> Result<Time, CliError> {
    let micros = i64::try_from(ts.physical_ms()).ok().and_then(|ms| ms.checked_mul(1000));
    let time = micros.and_then(|micros| Time::from_unix_micros(micros, fsp));
    time.ok_or_else(|| CliError::Unexpected { what: format!("timestamp {ts} is no time of day") })
}

fn unexpected(error: impl std::error::Error) -> CliError {
    CliError::Unexpected { what: error.to_string() }
}

/// Versions of user rows in a history: what a first catching up delivers.
pub(crate) fn row_versions(history: &History) -> u64 {
    let is_user = |table: TableId| table.get() <= RESERVED_ID_MAX - SYSTEM_TABLES;
    let is_row = |key: &[u8]| parse_record_key(key).is_ok_and(|key| is_user(key.table_id));
    history.log.iter().map(|version| u64::from(is_row(&version.key))).sum()
}
