//! Column values to contract values: the carriers of `spec/cdc-adapter.md` §4.1. Nothing is rounded, cut or
//! guessed: a value that has no exact carrier is an error.

use bytes::Bytes;
use tidegate_codec::text::write_text;
use tidegate_codec::value::{Time, Value, Vector};
use tidegate_contract::{Breach, json};
use tidegate_proto::searchfabric::v1::{
    AtomicValue, FieldData, FloatVector, ListValue, NullValue, VectorValue, atomic_value, field_data,
    vector_value,
};

const NANOS_PER_MICRO: i64 = 1_000;

/// Why a value has no exact carrier. Never shows the value (I11).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A zero or partial date such as `2024-00-00` is no instant.
    #[error("is a date without month or day, which is no point in time")]
    NoInstant,
    /// A text column holds bytes that are not UTF-8.
    #[error("is text that is not UTF-8")]
    NotUtf8,
    /// A vector holds NaN or an infinity.
    #[error("is a vector with a number that is not finite")]
    NotFinite,
    /// A vector does not have the dimension of its column.
    #[error("is a vector of another dimension than its column")]
    Dimension,
    /// A JSON value is damaged.
    #[error("is damaged JSON")]
    DamagedJson,
    /// A JSON value breaks a rule of the contract.
    #[error("{0}")]
    Json(Breach),
    /// The value is computed when read and was never stored.
    #[error("is a virtual column")]
    Virtual,
}

/// The contract's form of `value`, as its column's field type carries it.
///
/// # Errors
/// The value has no exact carrier.
pub fn field_data(value: Value<'_>) -> Result<FieldData, ValueError> {
    use atomic_value::Value as A;
    Ok(atomic(match value {
        Value::Null => return Ok(null()),
        Value::Virtual => return Err(ValueError::Virtual),
        Value::Vector(v) => return vector(&v),
        Value::Int(n) => A::Int64Value(n),
        Value::UInt(n) => A::Uint64Value(n),
        Value::Float(n) => A::FloatValue(n),
        Value::Double(n) => A::DoubleValue(n),
        Value::Bit { bits, .. } => A::Uint64Value(bits),
        Value::Year(year) => A::Int64Value(i64::from(year)),
        Value::Text(text) => A::StringValue(text.into_owned()),
        Value::Bytes(bytes) => A::BytesValue(Bytes::from(bytes.into_owned())),
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => A::Int64Value(instant(time)?),
        Value::Duration(span) => A::Int64Value(span.nanos() / NANOS_PER_MICRO),
        Value::Json(document) => {
            let mut text = Vec::new();
            document.write_text(&mut text).map_err(|_| ValueError::DamagedJson)?;
            let text = String::from_utf8(text).map_err(|_| ValueError::NotUtf8)?;
            A::StringValue(json::canonical(&text).map_err(ValueError::Json)?)
        }
        printed @ (Value::Decimal(_) | Value::Enum { .. } | Value::Set { .. }) => {
            let mut text = Vec::new();
            write_text(&printed, &mut text).map_err(|_| ValueError::NotUtf8)?;
            A::StringValue(String::from_utf8(text).map_err(|_| ValueError::NotUtf8)?)
        }
    }))
}

fn atomic(value: atomic_value::Value) -> FieldData {
    FieldData { value: Some(field_data::Value::AtomicValue(AtomicValue { value: Some(value) })) }
}

fn null() -> FieldData {
    atomic(atomic_value::Value::NullValue(NullValue::Null.into()))
}

fn instant(time: Time) -> Result<i64, ValueError> {
    time.unix_micros().ok_or(ValueError::NoInstant)
}

fn vector(vector: &Vector<'_>) -> Result<FieldData, ValueError> {
    let values: Vec<f32> = vector.elements().collect();
    if !values.iter().all(|v| v.is_finite()) {
        return Err(ValueError::NotFinite);
    }
    let value = vector_value::Value::F32Vector(FloatVector { values });
    Ok(FieldData { value: Some(field_data::Value::VectorValue(VectorValue { value: Some(value) })) })
}

/// A vector of a column without fixed dimension, which travels as a list of numbers.
///
/// # Errors
/// A number is not finite.
pub fn number_list(vector: &Vector<'_>) -> Result<FieldData, ValueError> {
    let values: Vec<AtomicValue> = vector
        .elements()
        .map(|v| v.is_finite().then_some(AtomicValue { value: Some(atomic_value::Value::FloatValue(v)) }))
        .collect::<Option<_>>()
        .ok_or(ValueError::NotFinite)?;
    Ok(FieldData { value: Some(field_data::Value::ListValue(ListValue { values })) })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use tidegate_codec::value::Duration;

    use super::*;

    fn carried(value: Value<'_>) -> atomic_value::Value {
        match field_data(value).expect("a value with a carrier").value {
            Some(field_data::Value::AtomicValue(AtomicValue { value: Some(value) })) => value,
            other => panic!("not atomic: {other:?}"),
        }
    }

    #[test]
    fn integers_keep_their_whole_range() {
        use atomic_value::Value as A;
        assert_eq!(carried(Value::Int(i64::MIN)), A::Int64Value(i64::MIN));
        assert_eq!(carried(Value::UInt(u64::MAX)), A::Uint64Value(u64::MAX));
        assert_eq!(carried(Value::Bit { bits: 5, width: 9 }), A::Uint64Value(5));
        assert_eq!(carried(Value::Year(2155)), A::Int64Value(2155));
    }

    #[test]
    fn instants_are_microseconds_and_zero_dates_are_refused() {
        let time = |text: &str| Time::parse(text, 6).expect("a time");
        // One day and one microsecond after the epoch.
        let day_after = Value::Timestamp(time("1970-01-02 00:00:00.000001"));
        assert_eq!(carried(day_after), atomic_value::Value::Int64Value(86_400_000_001));
        let before = Value::DateTime(time("1969-12-31 23:59:59"));
        assert_eq!(carried(before), atomic_value::Value::Int64Value(-1_000_000));
        assert_eq!(field_data(Value::Date(time("2024-00-00"))), Err(ValueError::NoInstant));
        let span = Value::Duration(Duration::parse("-01:00:00.5", 1).expect("a span"));
        assert_eq!(carried(span), atomic_value::Value::Int64Value(-3_600_500_000));
    }

    #[test]
    fn enumerations_are_their_text_and_null_stays_null() {
        let food = Value::Enum { index: 2, name: Cow::Borrowed("food") };
        assert_eq!(carried(food), atomic_value::Value::StringValue("food".to_owned()));
        let elems = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let set = Value::Set { bits: 0b101, elems: Cow::Borrowed(&elems) };
        assert_eq!(carried(set), atomic_value::Value::StringValue("a,c".to_owned()));
        assert_eq!(field_data(Value::Null), Ok(null()));
    }

    #[test]
    fn a_vector_is_finite_or_refused() {
        let good = Vector::from_elements(&[1.0, -2.5]).expect("two elements");
        let carried = field_data(Value::Vector(good.reborrow())).expect("finite");
        assert!(matches!(carried.value, Some(field_data::Value::VectorValue(_))));
        assert!(matches!(number_list(&good).expect("finite").value, Some(field_data::Value::ListValue(_))));
        let nan = Vector::from_elements(&[f32::NAN]).expect("one element");
        assert_eq!(number_list(&nan), Err(ValueError::NotFinite));
        assert_eq!(field_data(Value::Vector(nan)), Err(ValueError::NotFinite));
    }

    #[test]
    fn a_virtual_column_was_never_stored() {
        assert_eq!(field_data(Value::Virtual), Err(ValueError::Virtual));
    }
}
