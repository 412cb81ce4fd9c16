//! The callbacks of `verify`: every event goes into the model, and each snapshot is compared as soon as
//! nothing at or below its timestamp can still come.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tidegate_codec::event::{DdlEvent, RowChanged};
use tidegate_core::{TableId, Ts};
use tidegate_mini::{Admission, Callback, CallbackError, Checkpoint, LiveTable};
use tidegate_testkit::{Expected, Snapshot};
use tokio::sync::oneshot;

use super::compare::{Comparison, Difference};
use super::model::{Content, Model, Name};

/// What a verification found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Tables that were compared, each counted once.
    pub(crate) tables: BTreeSet<String>,
    pub(crate) snapshots: usize,
    /// TiDB's rows over all snapshots.
    pub(crate) rows: usize,
    pub(crate) differences: Vec<Difference>,
}

/// Databases that TiDB was asked about, over all snapshots. A recording can come from a cluster that has
/// others, whose rows are not in it.
fn databases(expected: &Expected) -> BTreeSet<String> {
    let tables = expected.snapshots.iter().flat_map(|snapshot| snapshot.tables.keys());
    tables.filter_map(|table| split(table)).map(|(schema, _)| schema).collect()
}

/// Follows the stream until the last snapshot is compared, then hands out its verdict.
pub(crate) struct Witness {
    model: Model,
    databases: BTreeSet<String>,
    ahead: VecDeque<Snapshot>,
    verdict: Verdict,
    done: Option<oneshot::Sender<Verdict>>,
}

impl Witness {
    /// A witness of everything TiDB answered, and where its verdict will be.
    pub(crate) fn new(expected: Expected) -> (Self, oneshot::Receiver<Verdict>) {
        let (done, verdict) = oneshot::channel();
        let witness = Self {
            model: Model::default(),
            databases: databases(&expected),
            ahead: expected.snapshots.into(),
            verdict: Verdict::default(),
            done: Some(done),
        };
        (witness, verdict)
    }

    /// Compares the snapshots at or below `ts`; everything up to there has been delivered.
    fn reached(&mut self, ts: Ts) -> Result<(), CallbackError> {
        while let Some(snapshot) = self.ahead.pop_front_if(|snapshot| snapshot.ts <= ts) {
            self.model.seal(snapshot.ts);
            self.compare(&snapshot)?;
        }
        if self.ahead.is_empty()
            && let Some(done) = self.done.take()
        {
            // The other side only goes away when the command is interrupted.
            let _ = done.send(std::mem::take(&mut self.verdict));
        }
        self.model.seal(ts);
        Ok(())
    }

    fn compare(&mut self, snapshot: &Snapshot) -> Result<(), CallbackError> {
        let asked = self.model.names().filter(|(schema, _)| self.databases.contains(schema));
        let ours = asked.map(|(schema, table)| format!("{schema}.{table}"));
        let names: BTreeSet<String> = ours.chain(snapshot.tables.keys().cloned()).collect();
        for table in names {
            let content = self.content(&table)?;
            let tidbs = snapshot.tables.get(&table);
            let comparison = Comparison { table: &table, ts: snapshot.ts };
            self.verdict.differences.extend(comparison.differences(content.as_ref(), tidbs));
            self.verdict.rows += tidbs.map_or(0, |tidbs| tidbs.rows.len());
            self.verdict.tables.insert(table);
        }
        self.verdict.snapshots += 1;
        Ok(())
    }

    fn content(&self, table: &str) -> Result<Option<Content>, CallbackError> {
        let Some(name) = split(table) else { return Ok(None) };
        Ok(self.model.content(&name).transpose()?)
    }
}

fn split(table: &str) -> Option<Name> {
    table.split_once('.').map(|(schema, table)| (schema.to_owned(), table.to_owned()))
}

impl Callback for Witness {
    fn on_tables(&mut self, joined: &[LiveTable], _left: &[TableId]) -> Result<(), CallbackError> {
        // Only at the start: what joins later was described by the DDL event before.
        for table in joined {
            let name = (table.version.schema.to_string(), table.version.table().to_owned());
            if self.model.content(&name).is_none() {
                self.model.table(name, Arc::clone(&table.version.layout));
            }
        }
        Ok(())
    }

    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError> {
        // Every column is decoded as the event shows it, so that a wrong layout is noticed at its row.
        for view in [row.pre, row.row].into_iter().flatten() {
            for (_, value) in view.columns() {
                value?;
            }
        }
        self.model.row(&row);
        Ok(Admission::Taken)
    }

    fn on_ddl(&mut self, ddl: &DdlEvent) -> Result<(), CallbackError> {
        self.reached(ddl.finished_ts.ts().prev())?;
        self.model.seal(ddl.finished_ts.ts());
        self.model.ddl(ddl);
        Ok(())
    }

    fn on_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), CallbackError> {
        self.reached(checkpoint.global().ts())
    }
}
