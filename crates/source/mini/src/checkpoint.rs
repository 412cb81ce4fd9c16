//! The progress that a runtime reports.

use tidegate_core::{ResolvedTs, TableId};

/// Progress of all tables at one moment. Borrowed by the callback; clone to keep.
///
/// Every row with a commit timestamp at or below a table's entry, and every DDL event at or below
/// [`Checkpoint::global`], has been handed to its callback before (I1, I4, I7). Neither ever goes back.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Checkpoint {
    global: ResolvedTs,
    tables: Vec<(TableId, ResolvedTs)>,
}

impl Checkpoint {
    /// A checkpoint of `tables`, in any order.
    pub fn new(global: ResolvedTs, tables: impl IntoIterator<Item = (TableId, ResolvedTs)>) -> Self {
        let mut tables: Vec<_> = tables.into_iter().collect();
        tables.sort_unstable_by_key(|&(table, _)| table);
        Self { global, tables }
    }

    /// The specification's `GlobalResolvedTs`: the minimum over the live tables, below the next DDL event
    /// that has not been delivered. A resume from it loses nothing.
    pub const fn global(&self) -> ResolvedTs {
        self.global
    }

    /// Progress of one physical table; `None` if it is not live, or joined and has not caught up yet.
    pub fn table(&self, table: TableId) -> Option<ResolvedTs> {
        let found = self.tables.binary_search_by_key(&table, |&(id, _)| id).ok()?;
        self.tables.get(found).map(|&(_, resolved)| resolved)
    }

    /// The specification's `TableResolvedTs`, ascending by table id.
    pub fn tables(&self) -> impl ExactSizeIterator<Item = (TableId, ResolvedTs)> + '_ {
        self.tables.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_by_id_whatever_order_they_came_in() {
        let (a, b) = ((TableId(9), ResolvedTs::new(5)), (TableId(2), ResolvedTs::new(7)));
        let checkpoint = Checkpoint::new(ResolvedTs::new(5), [a, b]);
        assert_eq!(checkpoint.tables().collect::<Vec<_>>(), vec![b, a]);
        assert_eq!(checkpoint.table(TableId(9)), Some(ResolvedTs::new(5)));
        assert_eq!(checkpoint.table(TableId(3)), None);
    }
}
