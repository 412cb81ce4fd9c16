//! CollectionFenceCoordinator: the collection-wide stop at a search-affecting DDL (`spec/cdc-adapter.md`
//! §6.1).
//!
//! A fence opens with the partitions that are active at the DDL. It is complete when each of them has its
//! final barrier acknowledged, or has been proven to have nothing left to say. Only then may the catalogue
//! move on, and only after that any partition.

use std::collections::BTreeMap;

use tidegate_core::{TableId, Ts};

/// Why a partition is in the quorum or needs not be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its barrier is not acknowledged yet.
    Awaited,
    /// Its barrier is acknowledged: every row of it at or below the DDL is durable.
    Passed,
}

/// One fence epoch of one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    id: String,
    ddl_ts: Ts,
    parts: BTreeMap<TableId, Part>,
}

impl Fence {
    /// Opens the fence of the DDL at `ddl_ts` over the active partitions. The id is the same after a replay.
    pub fn open(collection_id: &str, ddl_ts: Ts, active: impl IntoIterator<Item = TableId>) -> Self {
        let parts = active.into_iter().map(|table| (table, Part::Awaited)).collect();
        Self { id: format!("{collection_id}@{ddl_ts}"), ddl_ts, parts }
    }

    /// The name that barriers carry.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The DDL.
    pub const fn ddl_ts(&self) -> Ts {
        self.ddl_ts
    }

    /// The barrier `fence_id` of `table` is acknowledged. Barriers of other fences change nothing.
    pub fn acknowledged(&mut self, table: TableId, fence_id: &str) {
        if fence_id == self.id
            && let Some(part) = self.parts.get_mut(&table)
        {
            *part = Part::Passed;
        }
    }

    /// Whether every partition is through.
    pub fn is_complete(&self) -> bool {
        self.parts.values().all(|part| *part == Part::Passed)
    }

    /// The partitions that are still awaited.
    pub fn awaited(&self) -> impl Iterator<Item = TableId> + '_ {
        self.parts.iter().filter(|(_, part)| **part == Part::Awaited).map(|(table, _)| *table)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fence(tables: &[i64]) -> Fence {
        Fence::open("table-7", Ts::new(100), tables.iter().map(|id| TableId(*id)))
    }

    #[test]
    fn a_collection_without_partitions_needs_no_barrier() {
        assert!(fence(&[]).is_complete());
    }

    #[test]
    fn every_partition_must_pass_its_own_barrier() {
        let mut fence = fence(&[7, 8]);
        fence.acknowledged(TableId(7), "table-7@100");
        fence.acknowledged(TableId(7), "table-7@100");
        assert_eq!(fence.awaited().collect::<Vec<_>>(), [TableId(8)]);
        fence.acknowledged(TableId(8), "table-7@99");
        assert!(!fence.is_complete(), "a barrier of another fence counts for nothing");
        fence.acknowledged(TableId(9), "table-7@100");
        assert!(!fence.is_complete(), "a partition outside the fence counts for nothing");
        fence.acknowledged(TableId(8), "table-7@100");
        assert!(fence.is_complete());
    }

    proptest! {
        #[test]
        fn the_order_of_acknowledgements_does_not_matter(
            tables in proptest::collection::btree_set(0..50i64, 1..20),
            seed: u64,
        ) {
            let mut order: Vec<i64> = tables.into_iter().collect();
            let mut fence = fence(&order);
            order.sort_by_key(|id| (id.cast_unsigned() ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            for id in order {
                prop_assert!(!fence.is_complete());
                fence.acknowledged(TableId(id), "table-7@100");
            }
            prop_assert!(fence.is_complete());
        }
    }
}
