//! Columns that MODIFY COLUMN moved: reading rows that still hold only the column they came from.
//!
//! A rewriting MODIFY COLUMN makes a new column id and fills it in all rows, but TiKV's change feed leaves
//! those writes out (`reference/tidb-keys-and-rows.md` §7.1). A follower therefore keeps rows in which only
//! the old id occurs, and has to convert when it reads them under the new schema.

use std::sync::Arc;

use tidegate_core::{ColumnId, Ts};

use super::layout::{ColumnPlan, TableLayout};
use crate::ddl::ActionType;
use crate::event::DdlEvent;
use crate::meta::{ColumnInfo, FieldType, TableInfo};

/// A column whose values a MODIFY COLUMN moved into a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rewrite {
    /// The column's id before.
    pub from: ColumnId,
    /// Its id after.
    pub to: ColumnId,
}

/// What a rewritten column was before.
#[derive(Debug)]
pub(crate) struct Predecessor {
    pub(crate) plan: ColumnPlan,
    pub(crate) column: ColumnInfo,
    /// The type that values were converted to.
    pub(crate) target: FieldType,
    /// Rows written after this have the new column.
    pub(crate) at: Ts,
}

/// The rewrites between two versions of a table that follow each other: columns that became public under a
/// new id, while the public column they were made from is gone. Between two finished versions that is told by
/// the name; [`rewrites_of`] knows renamed ones too.
pub fn rewrites_between(old: &TableInfo, new: &TableInfo) -> Vec<Rewrite> {
    let is_public = |table: &TableInfo, id: ColumnId| {
        table.column_by_id(id).is_some_and(|(_, column)| column.is_public())
    };
    let appeared = new.columns.iter().filter(|column| column.is_public() && !is_public(old, column.id));
    let rewrite = |column: &ColumnInfo| {
        let from = in_flight_source(old, column.id).or_else(|| {
            let same_name = |before: &&ColumnInfo| before.is_public() && before.name.is(&column.name.lower);
            old.columns.iter().find(same_name)
        })?;
        let moved = from.id != column.id && !is_public(new, from.id);
        moved.then_some(Rewrite { from: from.id, to: column.id })
    };
    appeared.filter_map(rewrite).collect()
}

/// The rewrites that a finished DDL made in a table: as [`rewrites_between`], and columns that the statement
/// renamed as well (`CHANGE COLUMN a b …`). Those are what is left over on both sides, provided the statement
/// cannot have dropped and added columns instead.
pub fn rewrites_of(event: &DdlEvent, old: &TableInfo, new: &TableInfo) -> Vec<Rewrite> {
    let mut rewrites = rewrites_between(old, new);
    let query = event.query.to_ascii_lowercase();
    let mut words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let only_changes = match event.action {
        ActionType::ModifyColumn => true,
        ActionType::MultiSchemaChange => words.all(|word| word != "add" && word != "drop"),
        _ => false,
    };
    if !only_changes {
        return rewrites;
    }
    let left_over = |table: &TableInfo, other: &TableInfo, taken: &[ColumnId]| -> Vec<ColumnId> {
        let ids = table.public_columns().map(|(_, column)| column.id);
        ids.filter(|id| other.column_by_id(*id).is_none() && !taken.contains(id)).collect()
    };
    let gone = left_over(old, new, &rewrites.iter().map(|rewrite| rewrite.from).collect::<Vec<_>>());
    let made = left_over(new, old, &rewrites.iter().map(|rewrite| rewrite.to).collect::<Vec<_>>());
    if gone.len() == made.len() {
        rewrites.extend(gone.into_iter().zip(made).map(|(from, to)| Rewrite { from, to }));
    }
    rewrites
}

/// While the rewrite runs, the new column says which one it is made from.
fn in_flight_source(table: &TableInfo, id: ColumnId) -> Option<&ColumnInfo> {
    let (_, column) = table.column_by_id(id)?;
    let offset = column.change_state_info?.relative_col_offset;
    table.column_at(usize::try_from(offset).ok()?)
}

impl TableLayout {
    /// The layout of the version that follows `previous`: as [`Self::new`], and it reads rows that were
    /// written before any rewrite of a column, this version's `rewrites` or an earlier one's. `at`: when this
    /// version came into force.
    pub fn evolve(previous: &Self, table: Arc<TableInfo>, rewrites: &[Rewrite], at: Ts) -> Self {
        let mut layout = Self::new(table);
        let columns = layout.shared_table().clone();
        for (plan, column) in layout.plans_mut().iter_mut().zip(&columns.columns) {
            plan.predecessor = predecessor(previous, column, rewrites, at);
        }
        layout
    }
}

fn predecessor(
    previous: &TableLayout,
    column: &ColumnInfo,
    rewrites: &[Rewrite],
    at: Ts,
) -> Option<Arc<Predecessor>> {
    let lookup = |id: ColumnId| {
        let (index, _) = previous.table().column_by_id(id)?;
        previous.column(index)
    };
    if let Some(rewrite) = rewrites.iter().find(|rewrite| rewrite.to == column.id) {
        let (plan, before) = lookup(rewrite.from)?;
        let target = column.field_type.clone();
        return Some(Arc::new(Predecessor { plan: plan.clone(), column: before.clone(), target, at }));
    }
    lookup(column.id)?.0.predecessor.clone()
}
