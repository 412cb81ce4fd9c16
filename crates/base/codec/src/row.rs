//! Row values: a borrowed view that decodes one column at a time, in both formats
//! (`reference/tidb-keys-and-rows.md` §4–§6).

mod cell;
mod checksum;
mod defaults;
mod layout;
mod lineage;
mod v1;
mod v2;

use std::borrow::Cow;
use std::fmt;

use tidegate_core::{Diagnostic, ErrorClass, TableId, Ts};

use crate::convert::{self, convert};
use crate::datum;
use crate::encode::put_cell;
use crate::generated::{self, Expr, GeneratedError};
use crate::key::{Handle, KeyError};
use crate::meta::{ColumnInfo, TableInfo};
use crate::value::Value;

pub use cell::CellError;
pub use checksum::{Checksum, ChecksumError};
pub(crate) use layout::Missing;
pub use layout::TableLayout;
use layout::{ColumnPlan, HandlePart};
use lineage::Predecessor;
pub use lineage::{Rewrite, rewrites_between};
pub(crate) use v2::{CHECKSUM, HEADER_LEN, LARGE, MARKER};

/// A row's value could not be decoded. Carries no value bytes: row contents never reach a log (I11).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DecodeError {
    /// The table's name.
    pub table: String,
    /// Its logical id.
    pub table_id: TableId,
    /// The column's name; `None` when the row as a whole is damaged.
    pub column: Option<String>,
    /// Byte offset in the row value (in the handle, for a key column).
    pub offset: usize,
    /// What is wrong.
    #[source]
    pub reason: CellError,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot decode row of table {} (id {})", self.table, self.table_id)?;
        if let Some(column) = &self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ", at byte {}: {}", self.offset, self.reason)
    }
}

impl Diagnostic for DecodeError {
    fn code(&self) -> &'static str {
        "TG-CODEC-002"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Corrupt
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("check that the table's schema is the one in force at the row's commit timestamp".into())
    }
}

/// Where a column's bytes are, before they are decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A cell of format v2 and its offset in the row value.
    Cell(&'a [u8], usize),
    /// A datum of format v1 and its offset in the row value.
    Datum(&'a [u8], usize),
    /// The row says NULL.
    Null,
    /// The row does not mention the column.
    Absent,
    /// The row's structure is damaged at this offset.
    Damaged(usize),
}

/// The two row formats.
#[derive(Clone, Copy, Debug)]
enum Format<'a> {
    V1(v1::Row<'a>),
    V2(v2::Row<'a>),
}

/// One row: handle and value, with the table they belong to. Cheap to copy; decodes a column when asked.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    layout: &'a TableLayout,
    handle: Handle<'a>,
    value: &'a [u8],
    format: Format<'a>,
    written: Option<Ts>,
}

impl<'a> RowView<'a> {
    #[inline]
    pub(crate) fn parse(
        layout: &'a TableLayout,
        handle: Handle<'a>,
        value: &'a [u8],
    ) -> Result<Self, DecodeError> {
        let format = match value.first() {
            Some(&v2::MARKER) => v2::Row::parse(value).map(Format::V2),
            Some(_) => Some(Format::V1(v1::Row::new(value))),
            None => None,
        };
        match format {
            Some(format) => Ok(Self { layout, handle, value, format, written: None }),
            None => Err(layout.error(None, 0, CellError::Header)),
        }
    }

    /// The table's cached layout.
    pub const fn layout(&self) -> &'a TableLayout {
        self.layout
    }

    /// The table.
    pub fn table(&self) -> &'a TableInfo {
        self.layout.table()
    }

    /// The row's handle.
    pub const fn handle(&self) -> Handle<'a> {
        self.handle
    }

    /// The encoded row value.
    pub const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Tells when the row was written (its commit timestamp), where that is known. It matters for rows that
    /// were written around a rewriting MODIFY COLUMN (see [`TableLayout::evolve`]) and for nothing else.
    #[must_use]
    pub const fn written_at(mut self, written: Ts) -> Self {
        self.written = Some(written);
        self
    }

    /// The value of the column at `index` of [`TableInfo::columns`]. Decodes that column only.
    ///
    /// What the value says is taken first; then the key, for columns of the handle (it may hold a damaged
    /// copy); then the default of columns added after the row was written. Virtual generated columns are
    /// [`Value::Virtual`]; see [`Self::selected`].
    ///
    /// # Errors
    /// The bytes are no value of the column's type, or there is no such column.
    #[inline]
    pub fn column(&self, index: usize) -> Result<Value<'a>, DecodeError> {
        let Some((plan, info)) = self.layout.column(index) else {
            return Err(self.layout.error(None, 0, CellError::NoSuchColumn));
        };
        if plan.is_virtual {
            return Ok(Value::Virtual);
        }
        match self.find(plan, info) {
            Found::Cell(bytes, offset) => plan.kind.decode(info, bytes).map_err(|reason| (offset, reason)),
            other => self.elsewhere(plan, info, other),
        }
        .map_err(|(offset, reason)| self.layout.error(Some(index), offset, reason))
    }

    #[inline]
    fn find(&self, plan: &ColumnPlan, info: &ColumnInfo) -> Found<'a> {
        match &self.format {
            Format::V1(row) => row.find(info.id.get()),
            Format::V2(row) => row.find(plan.id, plan.slot),
        }
    }

    /// The rarer cases of [`Self::column`], out of the way of the common one.
    fn elsewhere(&self, plan: &'a ColumnPlan, info: &'a ColumnInfo, found: Found<'a>) -> Cell<'a> {
        let fail = |offset: usize| move |reason: CellError| (offset, reason);
        match (found, plan.handle) {
            (Found::Cell(bytes, offset), _) => plan.kind.decode(info, bytes).map_err(fail(offset)),
            (Found::Datum(bytes, offset), _) => {
                let decoded = datum::decode(bytes).map_err(CellError::from);
                decoded.and_then(|(datum, _)| plan.kind.interpret(info, datum)).map_err(fail(offset))
            }
            (Found::Damaged(offset), _) => Err((offset, CellError::Offsets)),
            (Found::Null | Found::Absent, Some(part)) => {
                self.handle_datum(part).and_then(|datum| plan.kind.interpret(info, datum)).map_err(fail(0))
            }
            (Found::Null, None) => Ok(Value::Null),
            (Found::Absent, None) => match &plan.predecessor {
                Some(before) if self.is_older(plan, before) => self.converted(plan, info, before),
                _ => missing(plan, info).map_err(fail(0)),
            },
        }
    }

    /// Whether the row was written before the column got its present id. When that is not known, ids tell:
    /// a row that mentions a later column is younger.
    fn is_older(&self, plan: &ColumnPlan, before: &Predecessor) -> bool {
        match (self.written, &self.format) {
            (Some(written), _) => written <= before.at,
            (None, Format::V2(row)) => row.last_id().is_none_or(|last| last < plan.id),
            (None, Format::V1(_)) => true,
        }
    }

    /// The value of the column that this one was made from, converted as MODIFY COLUMN did.
    fn converted(&self, plan: &'a ColumnPlan, info: &'a ColumnInfo, before: &'a Predecessor) -> Cell<'a> {
        let value = match self.find(&before.plan, &before.column) {
            Found::Cell(bytes, offset) => {
                before.plan.kind.decode(&before.column, bytes).map_err(|reason| (offset, reason))
            }
            other => self.elsewhere(&before.plan, &before.column, other),
        }?;
        let day_ms = 86_400_000;
        let today = i64::try_from(before.at.physical_ms() / day_ms).unwrap_or(0);
        let context = convert::Context { clip_negative: true, today };
        let fail = |_| (0, CellError::Conversion);
        let value = convert(&value, &before.target, context).map_err(fail)?;
        if value.is_null() {
            return Ok(Value::Null);
        }
        // Through the stored form, because the column may have been changed in place since.
        let mut cell = Vec::new();
        put_cell(&value, &before.target, &mut cell).ok_or((0, CellError::Conversion))?;
        let value = plan.kind.decode(info, &cell).map_err(|reason| (0, reason))?;
        Ok(value.into_owned())
    }

    /// The datum of the handle that a key column has there.
    fn handle_datum(&self, part: HandlePart) -> Result<datum::Datum<'a>, CellError> {
        match (part, self.handle) {
            (HandlePart::Int, Handle::Int(id)) => Ok(datum::Datum::Int(id)),
            (HandlePart::Common(position), Handle::Common(mut datums)) => {
                for _ in 0..position {
                    datums = datum::split(datums)?.1;
                }
                Ok(datum::decode(datums)?.0)
            }
            _ => Err(CellError::HandleKind),
        }
    }

    /// The column as `SELECT` would show it: as [`Self::column`], but virtual generated columns are computed.
    ///
    /// # Errors
    /// As [`Self::column`].
    pub fn selected(&self, index: usize) -> Result<Value<'a>, DecodeError> {
        self.computed(index, 0)
    }

    /// The value of an expression over this row's columns.
    pub(crate) fn evaluate(&self, expr: &Expr) -> Result<Value<'static>, GeneratedError> {
        generated::evaluate(expr, &Columns { row: self, depth: 0 })
    }

    /// `depth` counts generated columns that need each other, which TiDB keeps free of circles.
    fn computed(&self, index: usize, depth: usize) -> Result<Value<'a>, DecodeError> {
        let expr =
            self.layout.column(index).and_then(|(plan, info)| Some((plan.generated.as_deref()?, info)));
        let Some((expr, info)) = expr else { return self.column(index) };
        let fail = |reason: CellError| self.layout.error(Some(index), 0, reason);
        let failed = |error: GeneratedError| fail(CellError::Generated(error));
        let columns = Columns { row: self, depth };
        let result = expr.as_ref().map_err(Clone::clone).and_then(|expr| generated::evaluate(expr, &columns));
        let context = convert::Context { clip_negative: false, today: 0 };
        convert(&result.map_err(failed)?, &info.field_type, context).map_err(|_| fail(CellError::Conversion))
    }

    /// The value of the column `name`, in any case; `None` when the table has no such column.
    ///
    /// # Errors
    /// As [`Self::column`].
    pub fn by_name(&self, name: &str) -> Result<Option<Value<'a>>, DecodeError> {
        self.layout.column_index(name).map(|index| self.column(index)).transpose()
    }

    /// The columns that SQL can name, in declaration order, with their values; virtual generated ones are
    /// [`Value::Virtual`].
    pub fn columns(&self) -> impl Iterator<Item = (&'a ColumnInfo, Result<Value<'a>, DecodeError>)> + '_ {
        let row = *self;
        self.layout.table().public_columns().map(move |(index, info)| (info, row.column(index)))
    }

    /// The checksum that the row carries, if any (`reference/tidb-keys-and-rows.md` §8).
    ///
    /// # Errors
    /// The section is damaged.
    pub fn checksum(&self) -> Result<Option<Checksum>, ChecksumError> {
        match &self.format {
            Format::V1(_) => Ok(None),
            Format::V2(row) => Checksum::read(row),
        }
    }

    /// Verifies the checksum that the row carries; `raw_key` is the whole record key, without keyspace
    /// prefix, which version 1 covers. A row without one is sound.
    ///
    /// # Errors
    /// The section is damaged or the sum does not match.
    pub fn verify_checksum(&self, raw_key: &[u8]) -> Result<(), ChecksumError> {
        match self.checksum()? {
            Some(checksum) => checksum.verify(self, raw_key),
            None => Ok(()),
        }
    }
}

/// The columns of a row, as a generated column sees them.
struct Columns<'r, 'a> {
    row: &'r RowView<'a>,
    depth: usize,
}

impl generated::Columns for Columns<'_, '_> {
    fn value(&self, index: usize) -> Result<Value<'static>, GeneratedError> {
        if self.depth > self.row.layout.plans().len() {
            return Err(GeneratedError::Column);
        }
        let value = self.row.computed(index, self.depth + 1).map_err(|error| match error.reason {
            CellError::Generated(inner) => inner,
            _ => GeneratedError::Column,
        })?;
        Ok(value.into_owned())
    }

    fn ignores_case(&self, index: usize) -> bool {
        let column = self.row.table().columns.get(index);
        column.is_some_and(|column| column.field_type.collate.ends_with("_ci"))
    }
}

/// A value, or where in the row value and why it could not be read.
type Cell<'a> = Result<Value<'a>, (usize, CellError)>;

/// What a column has in rows that were written before it existed.
fn missing<'a>(plan: &'a ColumnPlan, info: &'a ColumnInfo) -> Result<Value<'a>, CellError> {
    match &plan.missing {
        Missing::Null => Ok(Value::Null),
        Missing::Cell(cell) => plan.kind.decode(info, cell),
        Missing::Unusable => Err(CellError::Default),
    }
}

impl TableLayout {
    /// The value that the column at `index` of [`TableInfo::columns`] has in rows that do not mention it: its
    /// origin default, NULL, or the zero value of a NOT NULL column.
    ///
    /// # Errors
    /// There is no such column, or the metadata's default is no value of its type.
    pub fn origin_default(&self, index: usize) -> Result<Value<'_>, DecodeError> {
        let Some((plan, info)) = self.column(index) else {
            return Err(self.error(None, 0, CellError::NoSuchColumn));
        };
        missing(plan, info).map_err(|reason| self.error(Some(index), 0, reason))
    }
}

impl From<KeyError> for CellError {
    fn from(error: KeyError) -> Self {
        Self::Datum(error)
    }
}

#[cfg(test)]
mod tests;
