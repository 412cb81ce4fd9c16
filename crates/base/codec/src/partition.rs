//! Which partition a row belongs to (`reference/tidb-schema-and-ddl.md` §1.10).
//!
//! A row's key names its partition, so a follower seldom needs this. It does after a DDL that moves rows
//! (REORGANIZE PARTITION, PARTITION BY, REMOVE PARTITIONING): the change feed leaves out the copies, and rows
//! kept from before must be filed under the new partitions.

use std::cmp::Ordering;

use tidegate_core::TableId;

use crate::convert::{Context, convert, number_of, plain_text};
use crate::encode::sort_key;
use crate::generated::{self, Expr, GeneratedError, compare};
use crate::meta::{ColumnInfo, PartitionDefinition, PartitionInfo, PartitionType, TableInfo};
use crate::row::{DecodeError, RowView, TableLayout};
use crate::value::Value;

/// Why a row's partition cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// The partitioning expression cannot be computed.
    #[error("cannot compute the partition of a row: {0}")]
    Expression(#[from] GeneratedError),
    /// A column that the partitioning needs cannot be read.
    #[error(transparent)]
    Column(#[from] DecodeError),
    /// KEY partitioning hashes sort keys, which cannot be made for every collation.
    #[error("cannot compute the partition of a row: no sort keys for column {0}")]
    Collation(String),
    /// The partitioning itself is not understood.
    #[error("partitions of table {0} are of an unknown kind")]
    UnknownKind(String),
}

/// The partitioning of a table, ready to place rows.
#[derive(Debug)]
pub struct Partitioner<'t> {
    table: &'t TableInfo,
    scheme: Scheme,
}

#[derive(Debug)]
enum Scheme {
    /// Rows are under the table's own id.
    None,
    /// Upper bounds, one for each of the keys; `None` is MAXVALUE.
    Range(Vec<Key>, Vec<Vec<Option<Expr>>>),
    /// The tuples of each partition, and which partition takes all the rest.
    List(Vec<Key>, Vec<Vec<Vec<Expr>>>, Option<usize>),
    Hash(Key),
    /// Column indexes.
    Key(Vec<usize>),
}

/// What is compared: a column, or an expression over columns.
#[derive(Debug)]
enum Key {
    Column(usize),
    Expression(Expr),
}

/// Reads a partitioning out of the metadata.
struct Reader<'t> {
    table: &'t TableInfo,
    partition: &'t PartitionInfo,
}

impl Reader<'_> {
    fn scheme(&self) -> Result<Scheme, PartitionError> {
        let definitions = &self.partition.definitions;
        match self.partition.kind {
            PartitionType::None => Ok(Scheme::None),
            PartitionType::Range => {
                let bounds = definitions.iter().map(|definition| self.bounds(definition));
                Ok(Scheme::Range(self.keys()?, bounds.collect::<Result<_, _>>()?))
            }
            PartitionType::List => {
                let tuples = definitions.iter().map(|definition| self.tuples(definition));
                let rest = definitions.iter().position(|d| d.in_values.iter().any(|tuple| is_default(tuple)));
                Ok(Scheme::List(self.keys()?, tuples.collect::<Result<_, _>>()?, rest))
            }
            PartitionType::Hash => Ok(Scheme::Hash(self.keys()?.pop().ok_or_else(|| self.unknown())?)),
            PartitionType::Key if self.partition.columns.is_empty() => {
                Ok(Scheme::Key(self.table.handle_key().ok_or_else(|| self.unknown())?))
            }
            PartitionType::Key => Ok(Scheme::Key(self.columns()?)),
            _ => Err(self.unknown()),
        }
    }

    fn unknown(&self) -> PartitionError {
        PartitionError::UnknownKind(self.table.name.to_string())
    }

    fn column_index(&self, name: &str) -> Option<usize> {
        self.table.column_by_name(name).map(|(index, _)| index)
    }

    fn expression(&self, text: &str) -> Result<Expr, PartitionError> {
        Ok(generated::parse(text, &|name| self.column_index(name))?)
    }

    fn columns(&self) -> Result<Vec<usize>, PartitionError> {
        let indexes = self.partition.columns.iter().map(|name| self.column_index(&name.lower));
        indexes.collect::<Option<_>>().ok_or_else(|| self.unknown())
    }

    /// The columns of the COLUMNS forms, else the one expression.
    fn keys(&self) -> Result<Vec<Key>, PartitionError> {
        if self.partition.columns.is_empty() {
            return Ok(vec![key(self.expression(&self.partition.expr)?)]);
        }
        Ok(self.columns()?.into_iter().map(Key::Column).collect())
    }

    fn bounds(&self, definition: &PartitionDefinition) -> Result<Vec<Option<Expr>>, PartitionError> {
        let bound = |text: &String| match text.as_str() {
            max if max.eq_ignore_ascii_case("maxvalue") => Ok(None),
            text => self.expression(text).map(Some),
        };
        definition.less_than.iter().map(bound).collect()
    }

    fn tuples(&self, definition: &PartitionDefinition) -> Result<Vec<Vec<Expr>>, PartitionError> {
        let named = definition.in_values.iter().filter(|tuple| !is_default(tuple));
        named.map(|tuple| tuple.iter().map(|text| self.expression(text)).collect()).collect()
    }
}

/// The partition of all values that no other one lists.
fn is_default(tuple: &[String]) -> bool {
    matches!(tuple, [only] if only.eq_ignore_ascii_case("default"))
}

impl<'t> Partitioner<'t> {
    /// Prepares the partitioning of `layout`'s table.
    ///
    /// # Errors
    /// An expression in the metadata is not understood.
    pub fn new(layout: &'t TableLayout) -> Result<Self, PartitionError> {
        let table = layout.table();
        let Some(partition) = table.partition.as_ref().filter(|_| table.is_partitioned()) else {
            return Ok(Self { table, scheme: Scheme::None });
        };
        let scheme = Reader { table, partition }.scheme()?;
        Ok(Self { table, scheme })
    }

    /// The physical id that `row` belongs under: a partition's, or the table's own if it has none. `None`:
    /// no partition takes the row, so TiDB would have refused it.
    ///
    /// # Errors
    /// [`PartitionError`]
    pub fn locate(&self, row: &RowView<'_>) -> Result<Option<TableId>, PartitionError> {
        let position = match &self.scheme {
            Scheme::None => return Ok(Some(self.table.id)),
            Scheme::Range(keys, bounds) => {
                let values = self.values(keys, row)?;
                self.first(bounds, |bounds| self.is_below(row, keys, &values, bounds))?
            }
            Scheme::List(keys, tuples, rest) => {
                let values = self.values(keys, row)?;
                let found = self.first(tuples, |tuples| {
                    for tuple in tuples {
                        if self.is_equal(row, keys, &values, tuple)? {
                            return Ok(true);
                        }
                    }
                    Ok(false)
                })?;
                found.or(*rest)
            }
            Scheme::Hash(key) => self.remainder(hash_of(&self.value(key, row)?)),
            Scheme::Key(columns) => self.remainder(u64::from(self.key_sum(columns, row)?)),
        };
        Ok(position.and_then(|at| self.table.partitions().get(at)).map(|partition| partition.id))
    }

    fn first<T>(
        &self,
        partitions: &[T],
        takes: impl Fn(&T) -> Result<bool, PartitionError>,
    ) -> Result<Option<usize>, PartitionError> {
        for (at, partition) in partitions.iter().enumerate() {
            if takes(partition)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn remainder(&self, hash: u64) -> Option<usize> {
        let count = u64::try_from(self.table.partitions().len()).ok()?;
        usize::try_from(hash.checked_rem(count)?).ok()
    }

    fn value(&self, key: &Key, row: &RowView<'_>) -> Result<Value<'static>, PartitionError> {
        match key {
            Key::Column(index) => Ok(row.selected(*index)?.into_owned()),
            Key::Expression(expr) => Ok(row.evaluate(expr)?),
        }
    }

    fn values(&self, keys: &[Key], row: &RowView<'_>) -> Result<Vec<Value<'static>>, PartitionError> {
        keys.iter().map(|key| self.value(key, row)).collect()
    }

    fn column(&self, key: &Key) -> Option<&ColumnInfo> {
        match key {
            Key::Column(index) => self.table.columns.get(*index),
            Key::Expression(_) => None,
        }
    }

    /// How a key's value compares to a bound; NULL is below everything.
    fn order(
        &self,
        row: &RowView<'_>,
        key: &Key,
        value: &Value<'_>,
        bound: &Expr,
    ) -> Result<Ordering, PartitionError> {
        let mut bound = row.evaluate(bound)?;
        let column = self.column(key);
        if let Some(column) = column {
            let context = Context { clip_negative: false, today: 0 };
            bound = convert(&bound, &column.field_type, context).unwrap_or(bound);
        }
        let fold = column.is_some_and(|column| column.field_type.collate.ends_with("_ci"));
        Ok(match (value.is_null(), bound.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => compare(value, &bound, fold),
        })
    }

    /// Whether the values lie below a partition's upper bounds, the first difference deciding.
    fn is_below(
        &self,
        row: &RowView<'_>,
        keys: &[Key],
        values: &[Value<'_>],
        bounds: &[Option<Expr>],
    ) -> Result<bool, PartitionError> {
        for ((key, value), bound) in keys.iter().zip(values).zip(bounds) {
            let Some(bound) = bound else { return Ok(true) };
            match self.order(row, key, value, bound)? {
                Ordering::Less => return Ok(true),
                Ordering::Greater => return Ok(false),
                Ordering::Equal => {}
            }
        }
        Ok(false)
    }

    fn is_equal(
        &self,
        row: &RowView<'_>,
        keys: &[Key],
        values: &[Value<'_>],
        tuple: &[Expr],
    ) -> Result<bool, PartitionError> {
        for ((key, value), member) in keys.iter().zip(values).zip(tuple) {
            if self.order(row, key, value, member)? != Ordering::Equal {
                return Ok(false);
            }
        }
        Ok(keys.len() == tuple.len())
    }

    /// CRC-32 over the texts of the columns, texts as sort keys, NULL as a zero byte.
    fn key_sum(&self, columns: &[usize], row: &RowView<'_>) -> Result<u32, PartitionError> {
        let mut hasher = crc32fast::Hasher::new();
        for index in columns {
            let value = row.selected(*index)?;
            match (&value, self.table.columns.get(*index)) {
                (Value::Null, _) => hasher.update(&[0]),
                (Value::Text(text), Some(column)) => {
                    let key = sort_key(column, text);
                    hasher.update(&key.map_err(|_| PartitionError::Collation(column.name.to_string()))?);
                }
                (Value::Bytes(bytes), _) => hasher.update(bytes),
                _ => hasher.update(plain_text(&value).as_bytes()),
            }
        }
        Ok(hasher.finalize())
    }
}

/// An expression that is only a column compares as the column does.
fn key(expr: Expr) -> Key {
    match expr {
        Expr::Column(index) => Key::Column(index),
        expr => Key::Expression(expr),
    }
}

/// HASH takes the remainder of the signed value and drops its sign; NULL counts as 0.
fn hash_of(value: &Value<'_>) -> u64 {
    if value.is_null() {
        return 0;
    }
    match value {
        Value::UInt(uint) => uint.cast_signed().unsigned_abs(),
        other => number_of(other).to_i64().unsigned_abs(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Handle;
    use crate::row::TableLayout;
    use crate::testing::{hex, layout, table};

    /// A table of `types` with partitions 1, 2, …, each given by its bounds or its tuples as SQL text.
    fn partitioned(types: &[&str], kind: PartitionType, expr: &str, parts: &[&[&[&str]]]) -> TableLayout {
        let mut table = table(types);
        let owned = |texts: &[&str]| -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
        let definition = |(at, part): (i64, &&[&[&str]])| PartitionDefinition {
            id: TableId(at),
            less_than: if kind == PartitionType::Range { owned(part[0]) } else { Vec::new() },
            in_values: if kind == PartitionType::List {
                part.iter().map(|t| owned(t)).collect()
            } else {
                Vec::new()
            },
            ..PartitionDefinition::default()
        };
        let columns =
            if expr.is_empty() { table.columns.iter().map(|c| c.name.clone()).collect() } else { Vec::new() };
        table.partition = Some(PartitionInfo {
            kind,
            expr: expr.to_owned(),
            columns,
            enable: true,
            definitions: (1..).zip(parts).map(definition).collect(),
            ..PartitionInfo::default()
        });
        layout(table)
    }

    fn located(layout: &TableLayout, row: &str) -> Option<i64> {
        let value = hex(row);
        let row = layout.row(Handle::Int(1), &value).unwrap();
        Partitioner::new(layout).unwrap().locate(&row).unwrap().map(TableId::get)
    }

    const NULL: &str = "800000000000";

    fn int(value: u8) -> String {
        format!("80 00 0100 0000 01 0100 {value:02x}")
    }

    #[test]
    fn ranges_take_what_lies_below_their_bound_and_null_goes_first() {
        let ranges = partitioned(&["int"], PartitionType::Range, "`c1` + 1", &[&[&["10"]], &[&["20"]]]);
        let cases = [(NULL, Some(1)), (&int(8), Some(1)), (&int(9), Some(2)), (&int(19), None)];
        for (row, partition) in cases {
            assert_eq!(located(&ranges, row), partition, "{row}");
        }
        let open = partitioned(&["int"], PartitionType::Range, "`c1`", &[&[&["10"]], &[&["MAXVALUE"]]]);
        assert_eq!(located(&open, &int(100)), Some(2));
    }

    #[test]
    fn ranges_over_columns_compare_the_first_difference() {
        let parts: [&[&[&str]]; 2] = [&[&["5", "'m'"]], &[&["5", "MAXVALUE"]]];
        let ranges = partitioned(&["int", "varchar(5)"], PartitionType::Range, "", &parts);
        let row = |number: u8, letter: &str| format!("80 00 0200 0000 01 02 0100 0200 {number:02x} {letter}");
        assert_eq!(located(&ranges, &row(4, "7a")), Some(1));
        assert_eq!(located(&ranges, &row(5, "61")), Some(1));
        assert_eq!(located(&ranges, &row(5, "7a")), Some(2));
        assert_eq!(located(&ranges, &row(6, "61")), None);
    }

    #[test]
    fn lists_name_their_members_with_null_and_a_default_among_them() {
        let parts: [&[&[&str]]; 2] = [&[&["1"], &["NULL"]], &[&["DEFAULT"], &["2"]]];
        let lists = partitioned(&["int"], PartitionType::List, "`c1`", &parts);
        for (row, partition) in [(NULL, 1), (&int(1), 1), (&int(2), 2), (&int(9), 2)] {
            assert_eq!(located(&lists, row), Some(partition), "{row}");
        }
        let closed = partitioned(&["int"], PartitionType::List, "`c1`", &[&[&["1"]]]);
        assert_eq!(located(&closed, &int(9)), None);
    }

    #[test]
    fn hashes_drop_the_sign_and_count_null_as_zero() {
        let hash = partitioned(&["tinyint"], PartitionType::Hash, "`c1`", &[&[], &[], &[]]);
        // −7 is f9; 7 mod 3 is 1.
        for (row, partition) in [(NULL, 1), (&int(7), 2), (&int(0xf9), 2), (&int(5), 3)] {
            assert_eq!(located(&hash, row), Some(partition), "{row}");
        }
    }

    #[test]
    fn keys_hash_the_text_of_their_columns() {
        let keys = partitioned(&["int"], PartitionType::Key, "", &[&[], &[], &[]]);
        // CRC-32 of "7" is 0x6abf4a82 = 1790921346, which leaves 0 when divided by 3.
        assert_eq!(located(&keys, &int(7)), Some(1));
        let unsorted = partitioned(&["varchar(9) utf8mb4_general_ci"], PartitionType::Key, "", &[&[], &[]]);
        let value = hex("80 00 0100 0000 01 0100 61");
        let row = unsorted.row(Handle::Int(1), &value).unwrap();
        let error = Partitioner::new(&unsorted).unwrap().locate(&row).unwrap_err();
        assert_eq!(error, PartitionError::Collation("c1".to_owned()));
    }
}
