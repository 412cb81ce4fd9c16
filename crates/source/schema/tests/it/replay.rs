//! Feeding a store from a recorded history.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
};

use bytes::Bytes;
use tidegate_codec::{
    event::DdlEvent,
    key::{DDL_JOB_TABLE, parse_record_key},
    meta::{SchemaState, TableInfo},
    meta_key::{MetaEntry, classify},
};
use tidegate_core::{Op, RawChange, RegionId, TableId, Ts};
use tidegate_schema::{SchemaStore, TableVersion};
use tidegate_testkit::{Expected, History, Version, data};

/// A history with its expectations.
pub(crate) struct Recording {
    pub(crate) history: History,
    pub(crate) expected: Expected,
    /// Every version of the job table, as the change feed gives them.
    pub(crate) jobs: Vec<RawChange>,
}

impl Recording {
    pub(crate) fn load(name: &str) -> Self {
        let expected = Expected::open(data::path(&format!("{name}.expected.json.zst"))).unwrap();
        let history = data::history(name).unwrap();
        let is_job = |version: &&Version| {
            parse_record_key(&version.key).is_ok_and(|key| key.table_id == DDL_JOB_TABLE)
        };
        let jobs = history.log.iter().filter(is_job).map(change).collect();
        Self { history, expected, jobs }
    }

    /// The same without the steps of jobs before their last, to save reading them again and again.
    pub(crate) fn finished_jobs_only(mut self) -> Self {
        let done = b"\"state\":4,\"warning\"";
        self.jobs.retain(|change| change.value.windows(done.len()).any(|window| window == done));
        self
    }

    /// When the metadata of user tables changed.
    pub(crate) fn metadata_changes(&self) -> BTreeSet<Ts> {
        self.history
            .log
            .iter()
            .filter(|version| is_user_metadata(version))
            .map(|v| v.commit_ts.ts())
            .collect()
    }

    /// Gives `store` all metadata at the history's base.
    pub(crate) fn initialise(&self, store: &SchemaStore) {
        let base = self.history.base.iter().map(|version| (version.key.clone(), version.value.clone()));
        store.initialise(self.history.header.base_ts, base).unwrap();
    }

    /// Gives `store` the metadata as it was at `ts`, half done DDLs and all.
    pub(crate) fn initialise_at(&self, store: &SchemaStore, ts: Ts) {
        store.initialise(ts, self.user_metadata_at(ts)).unwrap();
    }

    /// The metadata of user tables, and of the job table, as it was at `ts`.
    pub(crate) fn user_metadata_at(&self, ts: Ts) -> impl Iterator<Item = (Bytes, Bytes)> {
        self.metadata_at(ts).map(|version| (version.key.clone(), version.value.clone()))
    }

    fn metadata_at(&self, ts: Ts) -> impl Iterator<Item = &Version> {
        let mut newest = BTreeMap::new();
        let versions = self.history.base.iter().chain(&self.history.log);
        for version in
            versions.filter(|version| version.commit_ts.ts() <= ts && version.key.starts_with(b"m"))
        {
            newest.insert(&version.key, version);
        }
        newest.into_values().filter(|version| version.op == Op::Put)
    }

    /// Logical ids of the tables that the metadata at `ts` shows delete-only.
    pub(crate) fn delete_only_tables_at(&self, ts: Ts) -> BTreeSet<TableId> {
        let tables = self.metadata_at(ts).filter_map(|version| match classify(&version.key) {
            Ok(MetaEntry::Table(..)) => Some(TableInfo::parse(&version.value).unwrap()),
            _ => None,
        });
        tables.filter(|table| table.state == SchemaState::DeleteOnly).map(|table| table.id).collect()
    }

    /// Applies the jobs in `(after, to]` and resolves `to`.
    pub(crate) fn feed(&self, store: &SchemaStore, after: Ts, to: Ts) {
        let from = self.jobs.partition_point(|change| change.commit_ts.ts() <= after);
        let end = self.jobs.partition_point(|change| change.commit_ts.ts() <= to);
        store.apply(&self.jobs[from..end]).unwrap();
        store.advance(to.as_resolved()).unwrap();
    }

    pub(crate) fn end(&self) -> Ts {
        self.history.header.end_ts
    }
}

/// A database, a user's table or the job table. The system's other tables only cost time.
fn is_user_metadata(version: &Version) -> bool {
    match classify(&version.key) {
        Ok(MetaEntry::Database(_)) => true,
        Ok(MetaEntry::Table(schema, table)) => schema.get() != 1 || table == DDL_JOB_TABLE,
        _ => false,
    }
}

fn change(version: &Version) -> RawChange {
    RawChange {
        op: version.op,
        key: version.key.clone(),
        value: version.value.clone(),
        old_value: Default::default(),
        start_ts: version.start_ts,
        commit_ts: version.commit_ts,
        region_id: RegionId(1),
    }
}

/// All events after `after`.
pub(crate) fn all_events(store: &SchemaStore, after: Ts) -> Vec<Arc<DdlEvent>> {
    store.ddls(after, NonZeroUsize::MAX).unwrap().events
}

/// Everything that a store answers up to its resolved timestamp, as text: for comparing two stores.
pub(crate) fn answers(store: &SchemaStore, from: Ts) -> String {
    let resolved = store.resolved().ts();
    let events = all_events(store, from);
    let mut text = format!("{events:#?}{:#?}", store.trigger_ddls(from, NonZeroUsize::MAX).unwrap());
    let mut ids = BTreeSet::new();
    for ts in events.iter().map(|event| event.finished_ts.ts()).chain([from, resolved]) {
        let tables = store.physical_tables_at(ts).unwrap();
        ids.extend(tables.iter().map(|table| table.id));
        text += &format!("{ts}: {tables:#?}");
    }
    for id in ids {
        let newest = store.table_ddl_state(id).unwrap().1.filter(|newest| newest.ts() > from);
        text += &format!("{id}: {newest:?}\n");
        for event in store.table_ddls(id, from, resolved).unwrap() {
            for ts in [event.finished_ts.prev().ts(), event.finished_ts.ts()] {
                let answer = store.table_at(id, ts).map(|at| (version_text(&at.version), at.through));
                text += &format!("{id} at {ts}: {answer:?}\n");
            }
        }
    }
    text
}

fn version_text(version: &TableVersion) -> String {
    let TableVersion { from, rows_from, schema_id, schema, .. } = version;
    format!("{from} {rows_from} {schema_id} {schema} {:?}", version.info())
}
