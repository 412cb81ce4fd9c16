//! What an embedding program implements.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use tidegate_codec::event::{DdlEvent, RowChanged};
use tidegate_core::{ResolvedTs, TableId};
use tidegate_schema::TableVersion;

use crate::checkpoint::Checkpoint;

/// Why a callback failed; any failure stops the runtime.
pub type CallbackError = Box<dyn Error + Send + Sync>;

/// What became of a row that was handed to a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The callback has dealt with it.
    Taken,
    /// The callback has no room and has not looked at it. The runtime stops reading this table, goes on with
    /// the others, DDL and checkpoints, and offers the row again after each of those and every few
    /// milliseconds. How long to go on refusing is the callback's decision: it ends by failing.
    Full,
}

/// A table whose rows are delivered from now on.
#[derive(Clone, Debug)]
pub struct LiveTable {
    /// Its physical id.
    pub id: TableId,
    /// Its rows at or below it do not exist or are no concern of this run. Until a checkpoint lists the
    /// table, this counts as its progress. Rows of a partition made by TRUNCATE PARTITION may be older
    /// although they belong after that event (`reference/tidb-schema-and-ddl.md` §5.2).
    pub joined: ResolvedTs,
    /// Its definition and names as it joined.
    pub version: Arc<TableVersion>,
}

/// The three callbacks of `spec/mini-cdc.md` §11, called one at a time from one task.
///
/// - Everything handed in is borrowed for the call: keep nothing but owned copies. Nothing of it can be
///   changed.
/// - Callbacks run on the hot path: no network, no disk, no waiting; that belongs into [`Callback::ready`].
/// - Rows of one table come in no promised order of commit timestamps, and a row above the table's last
///   checkpoint may come twice; [`crate::bridge::Bridge`] puts them into order.
/// - A DDL event comes after every row of every table at or below its `finished_ts`, and in order among DDL
///   events. Rows above it may have come before.
/// - A checkpoint at `ts` comes after every row and every DDL event at or below `ts`.
/// - Once a callback has failed, or the runtime was asked to stop and the running call has returned, none is
///   called again. The callback is then dropped.
pub trait Callback: Send + 'static {
    /// The set of tables changes: first of all with the tables of the start, later after the DDL event that
    /// changed the set and before any row of a table that joined. A fixed set never changes.
    fn on_tables(&mut self, joined: &[LiveTable], left: &[TableId]) -> Result<(), CallbackError> {
        let _ = (joined, left);
        Ok(())
    }

    /// One row was inserted, updated or deleted.
    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError>;

    /// The schema changed.
    fn on_ddl(&mut self, ddl: &DdlEvent) -> Result<(), CallbackError>;

    /// Progress.
    fn on_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), CallbackError>;

    /// Back-pressure: awaited between two batches of rows. While it is pending nothing else is called, and
    /// upstream buffers fill up and then slow the stores down. It is dropped when the runtime stops.
    fn ready(&mut self) -> impl Future<Output = Result<(), CallbackError>> + Send {
        async { Ok(()) }
    }
}
