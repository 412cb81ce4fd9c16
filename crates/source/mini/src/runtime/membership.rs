//! How the set of followed tables changes with a DDL event (`docs/decisions/0003-follow-mode.md`).

use hashbrown::{HashMap, HashSet};
use tidegate_codec::event::DdlEvent;
use tidegate_core::{StartTs, TableId};
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
        let joined =
            joining.into_iter().map(|table| self.joining(ddl, table)).collect::<Result<Vec<_>, _>>()?;
        let tables: Vec<LiveTable> = joined.iter().map(|(table, _)| table.clone()).collect();
        self.callback.on_tables(&tables, &left).map_err(failed("table", at))?;
        left.into_iter().for_each(|table| self.leave(table));
        for (table, read_from) in joined {
            let opened = self.ahead.remove(&table.id);
            let feed = opened.unwrap_or_else(|| self.subscriber.subscribe(table.id, read_from));
            let reader = self.store.register_table(table.id, read_from.ts())?;
            self.join(Feed::new(feed, reader, read_from), table.joined);
        }
        self.forget_unused_feeds();
        Ok(())
    }

    /// A table that `ddl` adds, and from where its feed is read.
    fn joining(&self, ddl: &DdlEvent, table: &PhysicalTable) -> Result<(LiveTable, StartTs), MiniError> {
        let finished_ts = ddl.finished_ts;
        let Some(added) = ddl.need_added_tables.iter().find(|added| added.table_id == table.id) else {
            let (schema, name) = (table.schema.to_string(), table.table.clone());
            return Err(MiniError::MovedIntoFilter { table: table.id, schema, name, finished_ts });
        };
        // Rows at the event's own timestamp belong before it, so its predecessor is what is known.
        let joined = finished_ts.ts().prev().as_resolved();
        let version = self.store.table_at(table.id, finished_ts.ts())?.version;
        Ok((LiveTable { id: table.id, joined, version }, added.read_from))
    }

    /// Closes feeds opened for tables that no waiting event adds, because the filter left them out.
    fn forget_unused_feeds(&mut self) {
        let waiting = self.cursor.waiting().flat_map(|ddl| &ddl.need_added_tables);
        let expected: HashSet<TableId> = waiting.map(|added| added.table_id).collect();
        self.ahead.retain(|table, _| expected.contains(table));
    }
}
