//! `tidegate tail`: the changes of some tables as they come, one line each.

mod lines;

use std::collections::BTreeMap;
use std::process::ExitCode;

use bytes::Bytes;
use tidegate_codec::event::{DdlEvent, OwnedRow, RowChanged};
use tidegate_core::{CommitTs, TableId, Ts};
use tidegate_mini::{
    Admission, Callback, CallbackError, Checkpoint, LiveTable, Report, Runtime, StartConfig, TableFilter,
    TableSet, Upstream, UpstreamOptions,
};
use tokio::sync::oneshot;

use crate::args::TailArgs;
use crate::failure::{CliError, Failure};
use crate::signal::interrupted;
use lines::Lines;

/// Rows that wait for their seal; beyond it the source is slowed. Far more than a checkpoint interval brings.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// Runs the command until it is interrupted, or has printed everything up to `--until`.
pub(crate) async fn run(args: TailArgs) -> Result<ExitCode, Failure> {
    let interrupted = interrupted()?;
    let filter = TableFilter::parse(&args.tables).map_err(tidegate_mini::MiniError::from)?;
    let upstream = Upstream::connect(UpstreamOptions::new([args.pd])).await?;
    let start_ts = match args.from {
        Some(ts) => Ts::new(ts),
        None => upstream.pd().tso().await?,
    };
    let (printer, done) =
        Printer::new(if args.json { Lines::Json } else { Lines::Text }, args.until.map(Ts::new));
    let config = StartConfig::new(start_ts.as_start(), TableSet::Follow(filter));
    let mut runtime = Runtime::start(&upstream, config, printer).await?;
    let outcome = tokio::select! {
        report = runtime.wait() => return ended(report),
        // A dropped sender is a failed printer: the report says why.
        Ok(()) = done => Ok(ExitCode::SUCCESS),
        () = interrupted => Ok(ExitCode::SUCCESS),
    };
    runtime.stop();
    runtime.wait().await;
    upstream.close().await;
    outcome
}

fn ended(report: Report) -> Result<ExitCode, Failure> {
    Err(report.error.map_or_else(|| CliError::Ended { part: "the stream" }.into(), Failure::from))
}

/// Prints rows in commit order: they wait until a checkpoint or a DDL has sealed them.
struct Printer {
    lines: Lines,
    /// Of each physical table, dropped ones included: ids are not given twice.
    names: BTreeMap<TableId, String>,
    waiting: BTreeMap<(CommitTs, TableId, Bytes), OwnedRow>,
    waiting_bytes: usize,
    until: Option<Ts>,
    done: Option<oneshot::Sender<()>>,
}

impl Printer {
    fn new(lines: Lines, until: Option<Ts>) -> (Self, oneshot::Receiver<()>) {
        let (done, receiver) = oneshot::channel();
        let (names, waiting) = (BTreeMap::new(), BTreeMap::new());
        (Self { lines, names, waiting, waiting_bytes: 0, until, done: Some(done) }, receiver)
    }

    fn seal(&mut self, ts: Ts) -> Result<(), CallbackError> {
        let above = (self.bounded(ts).next().as_commit(), TableId(i64::MIN), Bytes::new());
        let later = self.waiting.split_off(&above);
        for ((_, table, _), row) in std::mem::replace(&mut self.waiting, later) {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(row.size_bytes());
            let name = self.names.get(&table).map_or("?", String::as_str);
            println!("{}", self.lines.row(name, &row.view()?)?);
        }
        if self.until.is_some_and(|until| until <= ts)
            && let Some(done) = self.done.take()
        {
            // Nobody waits any more when the command is interrupted at this moment.
            let _ = done.send(());
        }
        Ok(())
    }

    fn bounded(&self, ts: Ts) -> Ts {
        self.until.map_or(ts, |until| until.min(ts))
    }
}

impl Callback for Printer {
    fn on_tables(&mut self, joined: &[LiveTable], _left: &[TableId]) -> Result<(), CallbackError> {
        let named = |table: &LiveTable| format!("{}.{}", table.version.schema, table.version.table());
        self.names.extend(joined.iter().map(|table| (table.id, named(table))));
        Ok(())
    }

    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError> {
        if self.waiting_bytes >= WAITING_BYTES_MAX {
            return Ok(Admission::Full);
        }
        let key = (row.commit_ts(), row.table_id, row.raw.key.clone());
        let row = row.to_owned();
        let added = row.size_bytes();
        if self.waiting.insert(key, row).is_none() {
            self.waiting_bytes += added;
        }
        Ok(Admission::Taken)
    }

    fn on_ddl(&mut self, ddl: &DdlEvent) -> Result<(), CallbackError> {
        self.seal(ddl.finished_ts.ts())?;
        if self.bounded(ddl.finished_ts.ts()) == ddl.finished_ts.ts() {
            println!("{}", self.lines.ddl(ddl));
        }
        let one = ddl.table_info.iter().map(|info| (&ddl.schema_name, info));
        let several = ddl.multiple_table_infos.iter().map(|table| (&table.name.schema, &table.info));
        for (schema, info) in one.chain(several) {
            let name = format!("{schema}.{}", info.name);
            self.names.extend(info.physical_ids().into_iter().map(|id| (id, name.clone())));
        }
        Ok(())
    }

    fn on_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), CallbackError> {
        self.seal(checkpoint.global().ts())
    }
}
