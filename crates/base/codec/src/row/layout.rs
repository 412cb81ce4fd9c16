//! What is worked out once per table version, so that reading a row is a lookup.

use std::collections::HashMap;
use std::sync::Arc;

use super::cell::{CellError, CellKind};
use super::lineage::Predecessor;
use super::{DecodeError, DecodeFailure, RowView, defaults};
use crate::generated::{self, Expr, GeneratedError};
use crate::key::Handle;
use crate::meta::{ColumnInfo, HandleKind, TableInfo};

/// Where in the handle a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlePart {
    /// It is the integer handle.
    Int,
    /// It is this datum of the common handle.
    Common(usize),
}

/// What a column has in rows that do not mention it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// NULL.
    Null,
    /// A default, as a cell of format v2.
    Cell(Box<[u8]>),
    /// The metadata holds a default that is no value of the type.
    Unusable,
}

/// How to read one column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnPlan {
    /// Column id; 0, which no row has, when it does not fit the format.
    pub(crate) id: u32,
    /// Position among the cells of a row that mentions every stored column: where to look first. Beyond all
    /// cells for virtual columns, which have none.
    pub(crate) slot: usize,
    pub(crate) kind: CellKind,
    pub(crate) is_virtual: bool,
    pub(crate) handle: Option<HandlePart>,
    pub(crate) missing: Missing,
    /// The expression of a virtual generated column.
    pub(crate) generated: Option<Arc<Result<Expr, GeneratedError>>>,
    /// What the column was before MODIFY COLUMN rewrote it.
    pub(crate) predecessor: Option<Arc<Predecessor>>,
}

/// A table version and how to read its rows. Build once per version and share.
#[derive(Debug)]
pub struct TableLayout {
    table: Arc<TableInfo>,
    plans: Vec<ColumnPlan>,
    by_name: HashMap<String, usize>,
}

impl TableLayout {
    /// Works out how to read the rows of `table`. Never fails: a column of an unknown type fails when it is
    /// read.
    pub fn new(table: Arc<TableInfo>) -> Self {
        let mut plans: Vec<ColumnPlan> = table.columns.iter().map(|column| plan(&table, column)).collect();
        match table.handle_kind() {
            HandleKind::Column(index) => set_handle(&mut plans, index, HandlePart::Int),
            HandleKind::Common(index) => {
                for (position, part) in index.columns.iter().enumerate() {
                    set_handle(&mut plans, part.offset, HandlePart::Common(position));
                }
            }
            HandleKind::RowId => {}
        }
        assign_slots(&mut plans);
        let names = table.columns.iter().map(|column| column.name.lower.clone());
        let by_name = names.enumerate().map(|(index, name)| (name, index)).collect();
        Self { table, plans, by_name }
    }

    /// The table.
    pub fn table(&self) -> &TableInfo {
        &self.table
    }

    /// The table, to keep.
    pub const fn shared_table(&self) -> &Arc<TableInfo> {
        &self.table
    }

    /// Index in [`TableInfo::columns`] of the column `name`, in any case.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        let exact = self.by_name.get(name);
        exact.or_else(|| self.by_name.get(name.to_lowercase().as_str())).copied()
    }

    /// A view of one row; checks the row's header only.
    ///
    /// # Errors
    /// The value is empty, or the arrays that its header promises are not all there.
    #[inline]
    pub fn row<'a>(&'a self, handle: Handle<'a>, value: &'a [u8]) -> Result<RowView<'a>, DecodeError> {
        RowView::parse(self, handle, value)
    }

    #[inline]
    pub(crate) fn column(&self, index: usize) -> Option<(&ColumnPlan, &ColumnInfo)> {
        self.plans.get(index).zip(self.table.columns.get(index))
    }

    #[inline]
    pub(crate) fn plans(&self) -> &[ColumnPlan] {
        &self.plans
    }

    pub(super) fn plans_mut(&mut self) -> &mut [ColumnPlan] {
        &mut self.plans
    }

    /// An error about a column of this table, or about a whole row.
    #[cold]
    pub(crate) fn error(&self, column: Option<usize>, offset: usize, reason: CellError) -> DecodeError {
        let column = column.and_then(|index| self.table.columns.get(index));
        DecodeError::new(DecodeFailure {
            table: self.table.name.to_string(),
            table_id: self.table.id,
            column: column.map(|column| column.name.to_string()),
            offset,
            reason,
        })
    }
}

fn plan(table: &TableInfo, column: &ColumnInfo) -> ColumnPlan {
    let kind = CellKind::of(&column.field_type);
    ColumnPlan {
        id: u32::try_from(column.id.get()).unwrap_or(0),
        slot: 0,
        kind,
        is_virtual: column.is_virtual(),
        handle: None,
        missing: defaults::missing(table, column, kind),
        generated: column.is_virtual().then(|| {
            let index = |name: &str| table.column_by_name(name).map(|(index, _)| index);
            Arc::new(generated::parse(&column.generated_expr_string, &index))
        }),
        predecessor: None,
    }
}

fn set_handle(plans: &mut [ColumnPlan], index: usize, part: HandlePart) {
    if let Some(plan) = plans.get_mut(index) {
        plan.handle = Some(part);
    }
}

/// Cells are sorted by column id, so the slot of a column is the number of stored columns with smaller ids.
/// Key columns count as not stored: a wrong guess costs a binary search, nothing else.
fn assign_slots(plans: &mut [ColumnPlan]) {
    let stored = |plan: &ColumnPlan| !plan.is_virtual && plan.handle.is_none();
    let mut ids: Vec<u32> = plans.iter().filter(|plan| stored(plan)).map(|plan| plan.id).collect();
    ids.sort_unstable();
    for plan in plans {
        plan.slot = if plan.is_virtual { usize::MAX } else { ids.partition_point(|id| *id < plan.id) };
    }
}
