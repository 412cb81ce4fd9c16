//! A callback that writes down everything in sealed order.

use std::sync::{Arc, Mutex};

use hashbrown::HashMap;
use tidegate_codec::event::{DdlEvent, OwnedRow, RowChanged};
use tidegate_core::{Clock, ResolvedTs, SystemClock, TableId, Ts};
use tidegate_mini::bridge::{Admitted, Bridge, BridgeLimits, DdlScope, SealedRun, SourceEpoch};
use tidegate_mini::{Admission, Callback, CallbackError, Checkpoint, LiveTable};

/// Something that happened at a timestamp. Rows at a timestamp come before a DDL at it; rows that a new
/// partition took before its DDL was finished come right after the DDL.
#[derive(Debug)]
pub(crate) enum What {
    Row(OwnedRow),
    Ddl { event: DdlEvent, joined: Vec<LiveTable>, left: Vec<TableId> },
    EarlyRow(OwnedRow),
}

impl What {
    pub(crate) fn class(&self) -> u8 {
        match self {
            Self::Row(_) => 0,
            Self::Ddl { .. } => 1,
            Self::EarlyRow(_) => 2,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) start: Vec<LiveTable>,
    pub(crate) entries: Vec<(Ts, What)>,
    pub(crate) position: ResolvedTs,
}

impl Log {
    /// Forgets what lies above `position`: a resumed run delivers it again.
    pub(crate) fn cut(&mut self, position: ResolvedTs) {
        self.entries.retain(|(ts, _)| *ts <= position.ts());
    }
}

pub(crate) struct Recorder {
    log: Arc<Mutex<Log>>,
    bridge: Bridge<OwnedRow>,
    joined: HashMap<TableId, ResolvedTs>,
    resumed: bool,
    started: bool,
    clock: SystemClock,
}

impl Recorder {
    pub(crate) fn new(log: &Arc<Mutex<Log>>, resumed: bool) -> Self {
        Self {
            log: Arc::clone(log),
            bridge: Bridge::new(None, BridgeLimits::default(), SourceEpoch::FIRST),
            joined: HashMap::new(),
            resumed,
            started: false,
            clock: SystemClock::new(),
        }
    }

    fn keep(&self, runs: Vec<SealedRun<OwnedRow>>) {
        let mut log = self.log.lock().expect("no test panics with the log locked");
        for run in runs {
            let joined = self.joined[&run.table].ts();
            for row in run.rows {
                let ts = row.commit_ts.ts();
                // A table joins at the timestamp just below its DDL.
                let early = ts <= joined.next();
                let entry = if early { What::EarlyRow(row.row) } else { What::Row(row.row) };
                log.entries.push((ts.max(joined.next()), entry));
            }
        }
    }
}

impl Callback for Recorder {
    fn on_tables(&mut self, joined: &[LiveTable], left: &[TableId]) -> Result<(), CallbackError> {
        for table in joined {
            assert!(self.bridge.open(table.id), "table {} joins twice", table.id);
            self.joined.insert(table.id, table.joined);
        }
        for &table in left {
            self.bridge.close(table);
        }
        let mut log = self.log.lock().expect("no test panics with the log locked");
        if !std::mem::replace(&mut self.started, true) {
            if !self.resumed {
                log.start = joined.to_vec();
            }
            return Ok(());
        }
        match log.entries.last_mut() {
            Some((_, What::Ddl { joined: j, left: l, .. })) => {
                (*j, *l) = (joined.to_vec(), left.to_vec());
                Ok(())
            }
            other => Err(format!("tables changed without a ddl event, after {other:?}").into()),
        }
    }

    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError> {
        match self.bridge.offer(row.table_id, row.commit_ts(), row.to_owned(), self.clock.mono())? {
            Admitted::Buffered => Ok(Admission::Taken),
            Admitted::Full { .. } => Ok(Admission::Full),
        }
    }

    fn on_ddl(&mut self, ddl: &DdlEvent) -> Result<(), CallbackError> {
        let runs = self.bridge.ddl(ddl.finished_ts, DdlScope::All)?;
        self.keep(runs);
        let event = What::Ddl { event: ddl.clone(), joined: Vec::new(), left: Vec::new() };
        self.log.lock().expect("not poisoned").entries.push((ddl.finished_ts.ts(), event));
        Ok(())
    }

    fn on_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), CallbackError> {
        let runs = self.bridge.checkpoint(checkpoint)?;
        self.keep(runs);
        self.log.lock().expect("not poisoned").position = checkpoint.global();
        Ok(())
    }
}
