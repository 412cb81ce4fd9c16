//! What the unit tests share.

use std::sync::Arc;

use tidegate_core::{ColumnId, TableId};

use crate::meta::{
    ColumnFlags, ColumnInfo, FieldType, IndexColumn, IndexInfo, SchemaState, SqlType, TableInfo,
};
use crate::row::TableLayout;
use crate::value::Value;

/// Bytes from hex; blanks and bars are for the reader's eye.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// The type that a column definition such as `decimal(10,2)`, `bigint unsigned`, `enum(a,b)`,
/// `varchar(20) utf8mb4_general_ci` or `int not null` means.
pub(crate) fn field(definition: &str) -> FieldType {
    let (name, rest) = definition.split_at(definition.find(['(', ' ']).unwrap_or(definition.len()));
    let (arguments, rest) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((arguments, rest)) => (arguments.split(',').map(str::to_owned).collect(), rest),
        None => (Vec::new(), rest),
    };
    let number = |at: usize| arguments.get(at).and_then(|text: &String| text.parse().ok());
    let first = number(0);
    let (tp, flen, decimal) = match name {
        "tinyint" => (SqlType::TinyInt, 4, 0),
        "smallint" => (SqlType::SmallInt, 6, 0),
        "mediumint" => (SqlType::MediumInt, 9, 0),
        "int" => (SqlType::Int, 11, 0),
        "bigint" => (SqlType::BigInt, 20, 0),
        "float" => (SqlType::Float, first.unwrap_or(12), number(1).unwrap_or(-1)),
        "double" => (SqlType::Double, first.unwrap_or(22), number(1).unwrap_or(-1)),
        "decimal" => (SqlType::Decimal, first.unwrap_or(10), number(1).unwrap_or(0)),
        "char" | "binary" => (SqlType::Char, first.unwrap_or(1), -1),
        "varchar" | "varbinary" => (SqlType::VarChar, first.unwrap_or(-1), -1),
        "text" | "blob" => (SqlType::Blob, 65_535, -1),
        "date" => (SqlType::Date, 10, 0),
        "datetime" => (SqlType::DateTime, 19, first.unwrap_or(0)),
        "timestamp" => (SqlType::Timestamp, 19, first.unwrap_or(0)),
        "time" => (SqlType::Time, 10, first.unwrap_or(0)),
        "year" => (SqlType::Year, 4, 0),
        "bit" => (SqlType::Bit, first.unwrap_or(1), 0),
        "json" => (SqlType::Json, 4_294_967_295, 0),
        "enum" => (SqlType::Enum, 1, 0),
        "set" => (SqlType::Set, 1, 0),
        "vector" => (SqlType::Vector, first.unwrap_or(-1), 0),
        other => panic!("type {other}"),
    };
    let text = matches!(name, "char" | "varchar" | "text" | "enum" | "set");
    let collation = rest.split(' ').find(|word| word.contains('_') && *word != "not_null");
    let collate = if text { collation.unwrap_or("utf8mb4_bin") } else { "binary" };
    let mut flags = 0;
    if rest.contains("unsigned") {
        flags |= ColumnFlags::UNSIGNED.0;
    }
    if rest.contains("not null") {
        flags |= ColumnFlags::NOT_NULL.0;
    }
    let elems = if matches!(tp, SqlType::Enum | SqlType::Set) { arguments.clone() } else { Vec::new() };
    let charset = collate.split('_').next().unwrap().to_owned();
    FieldType {
        tp,
        flags: ColumnFlags(flags),
        flen,
        decimal,
        charset,
        collate: collate.into(),
        elems,
        ..FieldType::default()
    }
}

/// A public column.
pub(crate) fn column(id: i64, definition: &str) -> ColumnInfo {
    ColumnInfo {
        id: ColumnId(id),
        name: format!("c{id}").into(),
        field_type: field(definition),
        state: SchemaState::Public,
        version: 2,
        ..ColumnInfo::default()
    }
}

/// A table of columns with ids 1, 2, … and the hidden row id as its handle.
pub(crate) fn table(definitions: &[&str]) -> TableInfo {
    let columns = definitions.iter().zip(1..).map(|(definition, id)| column(id, definition));
    let mut columns: Vec<ColumnInfo> = columns.collect();
    for (offset, column) in columns.iter_mut().enumerate() {
        column.offset = offset;
    }
    TableInfo {
        id: TableId(114),
        name: "t".into(),
        columns,
        state: SchemaState::Public,
        ..TableInfo::default()
    }
}

/// [`table`] whose handle is its first column.
pub(crate) fn int_key_table(definitions: &[&str]) -> TableInfo {
    let mut table = table(definitions);
    table.pk_is_handle = true;
    table.columns[0].field_type.flags.0 |= ColumnFlags::PRIMARY_KEY.0;
    table
}

/// [`table`] whose clustered key is these columns, each with a prefix length or −1.
pub(crate) fn common_key_table(definitions: &[&str], key: &[(usize, i64)]) -> TableInfo {
    let mut table = table(definitions);
    table.is_common_handle = true;
    let part = |(offset, length): &(usize, i64)| IndexColumn {
        name: table.columns[*offset].name.clone(),
        offset: *offset,
        length: *length,
    };
    let columns = key.iter().map(part).collect();
    let state = SchemaState::Public;
    table.indexes =
        vec![IndexInfo { columns, is_primary: true, is_unique: true, state, ..IndexInfo::default() }];
    table
}

pub(crate) fn layout(table: TableInfo) -> TableLayout {
    TableLayout::new(Arc::new(table))
}

/// A value's text; `NULL` and `VIRTUAL` for the two that have none.
pub(crate) fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Virtual => "VIRTUAL".to_owned(),
        other => {
            let mut text = Vec::new();
            crate::text::write_text(other, &mut text).unwrap();
            String::from_utf8(text).unwrap_or_else(|error| format!("{:02x?}", error.into_bytes()))
        }
    }
}
