//! Documents and rows in one form that can be compared and hashed: field name to canonical text.
//!
//! The text of a row follows from the mapping in `spec/cdc-adapter.md` §4.1, written down here a second time
//! on purpose: a comparison that used the adapter's own transformer would agree with its mistakes.

use std::collections::BTreeMap;

use tidegate_codec::row::RowView;
use tidegate_codec::text::write_text;
use tidegate_codec::value::Value;
use tidegate_core::span::Hex;
use tidegate_proto::searchfabric::v1::{AtomicValue, Document, FieldData};
use tidegate_proto::searchfabric::v1::{atomic_value, field_data, vector_value};

use crate::failure::CliError;

/// A document's fields, each as `kind value`.
pub(crate) type Fields = BTreeMap<String, String>;

/// The fields of a document in the index. `is_json` tells which fields hold JSON text.
pub(crate) fn of_index(document: &Document, is_json: impl Fn(&str) -> bool) -> Result<Fields, CliError> {
    let field = |(name, data): (&String, &FieldData)| {
        let text = index_text(data, is_json(name)).ok_or_else(|| unknown(name))?;
        Ok((name.clone(), text))
    };
    document.fields.iter().map(field).collect()
}

fn index_text(data: &FieldData, json: bool) -> Option<String> {
    match data.value.as_ref()? {
        field_data::Value::AtomicValue(value) => atomic_text(value, json),
        field_data::Value::VectorValue(vector) => match vector.value.as_ref()? {
            vector_value::Value::F32Vector(vector) => Some(vector_text(vector.values.iter().copied())),
            _ => None,
        },
        _ => None,
    }
}

fn atomic_text(value: &AtomicValue, json: bool) -> Option<String> {
    use atomic_value::Value as Atomic;
    Some(match value.value.as_ref()? {
        Atomic::NullValue(_) => "null".to_owned(),
        Atomic::Int64Value(int) => format!("int {int}"),
        Atomic::Uint64Value(uint) => format!("uint {uint}"),
        Atomic::FloatValue(float) => float_text(f64::from(*float)),
        Atomic::DoubleValue(double) => float_text(*double),
        Atomic::StringValue(text) if json => json_text(text.as_bytes())?,
        Atomic::StringValue(text) => format!("text {text}"),
        Atomic::BytesValue(bytes) => format!("bytes {}", Hex(bytes)),
        Atomic::BoolValue(_) => return None,
    })
}

/// The fields that a row must have in the index.
pub(crate) fn of_row(row: &RowView<'_>) -> Result<Fields, CliError> {
    row.columns()
        .map(|(column, value)| {
            let name = column.name.to_string();
            let value = value.map_err(|error| CliError::Unexpected { what: error.to_string() })?;
            let text = row_text(&value).ok_or_else(|| unknown(&name))?;
            Ok((name, text))
        })
        .collect()
}

fn row_text(value: &Value<'_>) -> Option<String> {
    Some(match value {
        Value::Null => "null".to_owned(),
        Value::Int(int) => format!("int {int}"),
        Value::UInt(uint) => format!("uint {uint}"),
        Value::Float(float) => float_text(f64::from(*float)),
        Value::Double(double) => float_text(*double),
        Value::Bytes(bytes) => format!("bytes {}", Hex(bytes)),
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => {
            format!("int {}", time.unix_micros()?)
        }
        Value::Json(_) => json_text(&plain(value)?)?,
        Value::Vector(vector) => vector_text(vector.elements()),
        Value::Decimal(_) | Value::Text(_) | Value::Enum { .. } | Value::Set { .. } => {
            format!("text {}", String::from_utf8(plain(value)?).ok()?)
        }
        Value::Virtual | Value::Bit { .. } | Value::Duration(_) | Value::Year(_) => return None,
    })
}

fn plain(value: &Value<'_>) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    write_text(value, &mut text).ok()?;
    Some(text)
}

/// Members in byte order and no spaces: serde_json's maps are ordered by key.
fn json_text(text: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    Some(format!("json {value}"))
}

/// The exact bits, with −0 as 0, so that no difference hides in printing.
fn float_text(value: f64) -> String {
    format!("float {:016x}", (value + 0.0).to_bits())
}

fn vector_text(elements: impl Iterator<Item = f32>) -> String {
    let bits: Vec<String> = elements.map(|element| format!("{:08x}", (element + 0.0).to_bits())).collect();
    format!("vector {}", bits.join(" "))
}

fn unknown(field: &str) -> CliError {
    CliError::Unexpected { what: format!("the comparison does not know the type of field {field}") }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use tidegate_codec::vector::Vector;
    use tidegate_proto::searchfabric::v1::{FloatVector, VectorValue};

    use super::*;

    fn atomic(value: atomic_value::Value) -> FieldData {
        FieldData { value: Some(field_data::Value::AtomicValue(AtomicValue { value: Some(value) })) }
    }

    fn check_same(row: &Value<'_>, index: &FieldData, json: bool) {
        let text = row_text(row);
        assert!(text.is_some());
        assert_eq!(text, index_text(index, json));
    }

    #[test]
    fn equal_values_have_equal_text_on_both_sides() {
        use atomic_value::Value as Atomic;
        check_same(&Value::Null, &atomic(Atomic::NullValue(1)), false);
        check_same(&Value::UInt(u64::MAX), &atomic(Atomic::Uint64Value(u64::MAX)), false);
        check_same(&Value::Double(-0.0), &atomic(Atomic::DoubleValue(0.0)), false);
        let text = Value::Text(Cow::Borrowed("猫"));
        check_same(&text, &atomic(Atomic::StringValue("猫".to_owned())), false);
        let vector = Vector::from_elements(&[0.5, -1.0]).expect("two elements");
        let values = FloatVector { values: vec![0.5, -1.0] };
        let index = VectorValue { value: Some(vector_value::Value::F32Vector(values)) };
        let index = FieldData { value: Some(field_data::Value::VectorValue(index)) };
        check_same(&Value::Vector(vector), &index, false);
    }

    #[test]
    fn json_is_compared_by_content_and_not_by_spelling() {
        assert_eq!(json_text(br#"{"b": 1, "a": [2]}"#), json_text(br#"{"a":[2],"b":1}"#));
        assert_ne!(json_text(br#"{"a":1}"#), json_text(br#"{"a":2}"#));
    }

    #[test]
    fn a_number_and_its_text_are_not_equal() {
        assert_ne!(row_text(&Value::Int(5)), row_text(&Value::Text(Cow::Borrowed("5"))));
        assert_ne!(row_text(&Value::Int(5)), row_text(&Value::UInt(5)));
    }
}
