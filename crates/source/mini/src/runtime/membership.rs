//! How the set of followed tables changes with a DDL event (`docs/decisions/0003-follow-mode.md`).

use hashbrown::{HashMap, HashSet};
use tidegate_codec::ddl::ActionType;
use tidegate_codec::event::DdlEvent;
use tidegate_core::{StartTs, TableId, Ts};
use tidegate_schema::PhysicalTable;

use super::feeds::Feed;
use super::session::{Session, failed};
use crate::callback::{Callback, LiveTable};
use crate::config::TableSet;
use crate::error::MiniError;
use crate::filter::TableFilter;

/// Whether `ddl` is about a table under `filter`, by any of its names before or after; events of whole
/// schemas concern every filter that could match a table in them.
pub(super) fn concerns(filter: &TableFilter, ddl: &DdlEvent) -> bool {
    if ddl.table_name.is_empty() && ddl.multiple_table_infos.is_empty() {
        return filter.matches_schema(&ddl.schema_name);
    }
    let change = &ddl.table_name_change;
    let others = ddl.other.iter().chain(&change.added).chain(&change.dropped);
    let infos = ddl.multiple_table_infos.iter().map(|table| &table.name);
    filter.matches(&ddl.schema_name, &ddl.table_name)
        || others.chain(infos).any(|name| filter.matches(&name.schema, &name.table))
}

/// From when (exclusive) a table that `ddl` made has rows, if the event made it without any. Other tables
/// join with content: partitions that a reorganisation filled, recovered tables, and tables that a rename or
/// an exchange brought under the filter.
fn made_empty(ddl: &DdlEvent, id: TableId) -> Option<StartTs> {
    let added = ddl.need_added_tables.iter().find(|added| added.table_id == id)?;
    matches!(
        ddl.action,
        ActionType::CreateTable
            | ActionType::CreateTables
            | ActionType::TruncateTable
            | ActionType::AddPartition
            | ActionType::TruncatePartition
    )
    .then_some(added.read_from)
}

/// The feeds that `ddl` will need, as far as its own data tells: tables and from when to read them.
pub(super) fn feeds_ahead(ddl: &DdlEvent) -> impl Iterator<Item = (TableId, StartTs)> + '_ {
    let finished = ddl.finished_ts.ts().as_start();
    let added = ddl.need_added_tables.iter().map(|added| added.table_id);
    added.map(move |id| (id, made_empty(ddl, id).unwrap_or(finished)))
}

impl<C: Callback> Session<C> {
    /// Compares the live tables with what the schema store has under the filter right after `ddl`. The
    /// difference covers every kind of DDL, renames across the filter and exchanges included.
    pub(super) fn change_tables(&mut self, ddl: &DdlEvent) -> Result<(), MiniError> {
        let TableSet::Follow(filter) = &self.config.tables else { return Ok(()) };
        if !ddl.is_trigger() {
            return Ok(());
        }
        let at = ddl.finished_ts.ts();
        let tables = self.store.physical_tables_at(at)?;
        let wanted = tables.into_iter().filter(|table| filter.matches(&table.schema, &table.table));
        let wanted: HashMap<TableId, PhysicalTable> = wanted.map(|table| (table.id, table)).collect();
        let mut left: Vec<TableId> = self.fence.live().filter(|id| !wanted.contains_key(id)).collect();
        left.sort_unstable();
        let mut joining: Vec<&PhysicalTable> =
            wanted.values().filter(|table| !self.fence.is_live(table.id)).collect();
        joining.sort_unstable_by_key(|table| table.id);
        if left.is_empty() && joining.is_empty() {
            return Ok(());
        }
        let joining: Vec<LiveTable> =
            joining.into_iter().map(|table| self.joining(table.id, at)).collect::<Result<_, _>>()?;
        self.callback.on_tables(&joining, &left).map_err(failed("table", at))?;
        left.into_iter().for_each(|table| self.leave(table));
        for table in joining {
            let feed = self.feed_of(ddl, table.id)?;
            self.join(feed, table.joined);
        }
        self.forget_unused_feeds();
        Ok(())
    }

    fn joining(&self, id: TableId, at: Ts) -> Result<LiveTable, MiniError> {
        let version = self.store.table_at(id, at)?.version;
        // Rows at the event's own timestamp may still come, so its predecessor is what is known.
        Ok(LiveTable { id, joined: at.prev().as_resolved(), version })
    }

    /// The feed of a table that `ddl` brings: from its first row if it was made empty, else its content at
    /// the event first.
    fn feed_of(&mut self, ddl: &DdlEvent, id: TableId) -> Result<Feed, MiniError> {
        let at = ddl.finished_ts.ts();
        let reader = self.store.register_table(id, at)?;
        let empty_from = made_empty(ddl, id);
        let opened = self.ahead.remove(&id);
        let read_from = empty_from.unwrap_or(at.as_start());
        let subscription = opened.unwrap_or_else(|| self.subscriber.subscribe(id, read_from));
        Ok(match empty_from {
            Some(read_from) => Feed::changes(reader, subscription, read_from, at),
            None => Feed::with_content(reader, subscription, self.subscriber.content(id, at)),
        })
    }

    /// Closes feeds opened for tables that no waiting event adds, because the filter left them out.
    fn forget_unused_feeds(&mut self) {
        let waiting = self.cursor.waiting().flat_map(|ddl| feeds_ahead(ddl));
        let expected: HashSet<TableId> = waiting.map(|(table, _)| table).collect();
        self.ahead.retain(|table, _| expected.contains(table));
    }
}
