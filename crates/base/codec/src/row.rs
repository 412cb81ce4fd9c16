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
use std::ops::Deref;

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
pub use lineage::{Rewrite, rewrites_between, rewrites_of};
pub(crate) use v2::{CHECKSUM, HEADER_LEN, LARGE, MARKER};

/// A row's value could not be decoded. Carries no value bytes: row contents never reach a log (I11). A thin
/// pointer, so that results stay small; reads as a [`DecodeFailure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(Box<DecodeFailure>);

/// What could not be decoded, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeFailure {
    /// The table's name.
    pub table: String,
    /// Its logical id.
    pub table_id: TableId,
    /// The column's name; `None` when the row as a whole is damaged.
    pub column: Option<String>,
    /// Byte offset in the row value; 0 where the bytes are not in it (key columns, defaults).
    pub offset: usize,
    /// What is wrong.
    pub reason: CellError,
}

impl DecodeError {
    fn new(failure: DecodeFailure) -> Self {
        Self(Box::new(failure))
    }
}

impl Deref for DecodeError {
    type Target = DecodeFailure;

    fn deref(&self) -> &DecodeFailure {
        &self.0
    }
}

impl std::error::Error for DecodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
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
    /// A cell of format v2.
    Cell(&'a [u8]),
    /// A datum of format v1.
    Datum(&'a [u8]),
    /// The row says NULL.
    Null,
    /// The row does not mention the column.
    Absent,
    /// The row's structure is damaged at this offset.
    Damaged(usize),
}

/// One row: handle and value, with the table they belong to. Cheap to copy; decodes a column when asked.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    layout: &'a TableLayout,
    handle: Handle<'a>,
    value: &'a [u8],
    /// `None`: the row has format v1.
    header: Option<v2::Header>,
    written: Option<Ts>,
}

impl<'a> RowView<'a> {
    #[inline]
    pub(crate) fn parse(
        layout: &'a TableLayout,
        handle: Handle<'a>,
        value: &'a [u8],
    ) -> Result<Self, DecodeError> {
        let header = v2::Header::parse(value);
        let sound = header.is_some() || value.first().is_some_and(|first| *first != v2::MARKER);
        if !sound {
            return Err(layout.error(None, 0, CellError::Header));
        }
        Ok(Self { layout, handle, value, header, written: None })
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
        match self.plain(index) {
            Some(value) => Ok(value),
            None => self.column_in_full(index),
        }
    }

    /// A column of a plain type whose cell is where it was expected; `None` for all others.
    #[inline]
    fn plain(&self, index: usize) -> Option<Value<'a>> {
        let plan = self.layout.plans().get(index)?;
        plan.kind.decode_plain(self.header.as_ref()?.cell_at(self.value, plan.id, plan.slot)?)
    }

    fn column_in_full(&self, index: usize) -> Result<Value<'a>, DecodeError> {
        let Some((plan, info)) = self.layout.column(index) else {
            return Err(self.layout.error(None, 0, CellError::NoSuchColumn));
        };
        if plan.is_virtual {
            return Ok(Value::Virtual);
        }
        let found = self.find(plan, info);
        self.interpreted(plan, info, found).map_err(|reason| self.fail(index, reason))
    }

    fn find(&self, plan: &ColumnPlan, info: &ColumnInfo) -> Found<'a> {
        match &self.header {
            Some(header) => header.find(self.value, plan.id, plan.slot),
            None => v1::find(self.value, info.id.get()),
        }
    }

    /// The error about a column; where its bytes are is looked up only now.
    #[cold]
    fn fail(&self, index: usize, reason: CellError) -> DecodeError {
        let found = self.layout.column(index).map(|(plan, info)| self.find(plan, info));
        let offset = match found {
            Some(Found::Cell(bytes) | Found::Datum(bytes)) => {
                bytes.as_ptr().addr().saturating_sub(self.value.as_ptr().addr())
            }
            Some(Found::Damaged(offset)) => offset,
            _ => 0,
        };
        self.layout.error(Some(index), offset, reason)
    }

    /// The value of what was found.
    fn interpreted(&self, plan: &'a ColumnPlan, info: &'a ColumnInfo, found: Found<'a>) -> Cell<'a> {
        match (found, plan.handle) {
            (Found::Cell(bytes), _) => plan.kind.decode(info, bytes),
            (Found::Datum(bytes), _) => {
                let (datum, _) = datum::decode(bytes)?;
                plan.kind.interpret(info, datum)
            }
            (Found::Damaged(_), _) => Err(CellError::Offsets),
            (Found::Null | Found::Absent, Some(part)) => plan.kind.interpret(info, self.handle_datum(part)?),
            (Found::Null, None) => Ok(Value::Null),
            (Found::Absent, None) => match &plan.predecessor {
                Some(before) if self.is_older(plan, before) => self.converted(plan, info, before),
                _ => missing(plan, info),
            },
        }
    }

    /// Whether the row was written before the column got its present id. When that is not known, ids tell:
    /// a row that mentions a later column is younger.
    fn is_older(&self, plan: &ColumnPlan, before: &Predecessor) -> bool {
        match (self.written, &self.header) {
            (Some(written), _) => written <= before.at,
            (None, Some(header)) => header.last_id(self.value).is_none_or(|last| last < plan.id),
            (None, None) => true,
        }
    }

    /// The value of the column that this one was made from, converted as MODIFY COLUMN did.
    fn converted(&self, plan: &'a ColumnPlan, info: &'a ColumnInfo, before: &'a Predecessor) -> Cell<'a> {
        let found = self.find(&before.plan, &before.column);
        let value = self.interpreted(&before.plan, &before.column, found)?;
        let day_ms = 86_400_000;
        let today = i64::try_from(before.at.physical_ms() / day_ms).unwrap_or(0);
        let context = convert::Context { clip_negative: true, today };
        let value = convert(&value, &before.target, context).map_err(|_| CellError::Conversion)?;
        if value.is_null() {
            return Ok(Value::Null);
        }
        // Through the stored form, because the column may have been changed in place since.
        let mut cell = Vec::new();
        put_cell(&value, &before.target, &mut cell).ok_or(CellError::Conversion)?;
        let value = plan.kind.decode(info, &cell)?;
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
        self.header.as_ref().map_or(Ok(None), |header| Checksum::read(header, self.value))
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
        let value = self.row.computed(index, self.depth + 1).map_err(|error| match &error.reason {
            CellError::Generated(inner) => inner.clone(),
            _ => GeneratedError::Column,
        })?;
        Ok(value.into_owned())
    }

    fn ignores_case(&self, index: usize) -> bool {
        let column = self.row.table().columns.get(index);
        column.is_some_and(|column| column.field_type.collate.ends_with("_ci"))
    }
}

/// A value, or why it could not be read.
type Cell<'a> = Result<Value<'a>, CellError>;

/// What a column has in rows that were written before it existed.
fn missing<'a>(plan: &'a ColumnPlan, info: &'a ColumnInfo) -> Cell<'a> {
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
