//! Rows against the schema of their generation.

use tidegate_proto::searchfabric::v1::{
    AtomicValue, FieldData, ListValue, ObjectArrayValue, RowMutation, RowMutationKind, ScalarFieldType,
    VectorElement, VectorValue, atomic_value, document_id, field_data, vector_value,
};

use super::{FieldRule, FieldShape, Schema};
use crate::error::{Breach, SfErrorCode};
use crate::float::f16_is_finite;
use crate::json;

impl Schema {
    /// Checks a row mutation that was made under this schema, which has the version `schema_version`. The
    /// row's form is assumed to be checked ([`crate::validate::check_batch`]).
    ///
    /// # Errors
    /// `SF_SCHEMA_VERSION_MISMATCH`, `SF_FIELD_UNDECLARED`, `SF_FIELD_TYPE_MISMATCH`, `SF_VECTOR_INVALID`,
    /// `SF_JSON_INVALID`, `SF_JSON_TOO_DEEP` or `SF_DOC_ID_INVALID`, with the path below the row mutation.
    pub fn check_row(&self, row: &RowMutation, schema_version: u32) -> Result<(), Breach> {
        if row.kind() == RowMutationKind::Delete {
            return Ok(());
        }
        if row.schema_version != Some(schema_version) {
            let detail = format!("must be {schema_version}, as the batch's schema generation says");
            return Err(Breach::new(SfErrorCode::SfSchemaVersionMismatch, "schema_version", detail));
        }
        for (name, data) in &row.fields {
            let path = || format!("fields[{name:?}]");
            let Some(rule) = self.field(name) else {
                return Err(Breach::new(SfErrorCode::SfFieldUndeclared, path(), "is not declared"));
            };
            rule.check(data).map_err(|e| e.within(path()))?;
        }
        self.check_identity(row)
    }

    fn check_identity(&self, row: &RowMutation) -> Result<(), Breach> {
        let Some(document_id::IdValue::U64(id)) = row.doc_id.as_ref().and_then(|d| d.id_value.as_ref())
        else {
            return Err(Breach::new(SfErrorCode::SfDocIdInvalid, "doc_id", "is missing"));
        };
        match row.fields.get(self.doc_id_field()).map(as_u64) {
            Some(field) if field != Some(*id) => Err(doc_id_differs(self.doc_id_field())),
            None if row.kind() == RowMutationKind::Upsert => Err(doc_id_differs(self.doc_id_field())),
            _ => Ok(()),
        }
    }
}

fn doc_id_differs(field: &str) -> Breach {
    Breach::new(SfErrorCode::SfDocIdInvalid, "doc_id", format!("is not the value of the field `{field}`"))
}

fn as_u64(data: &FieldData) -> Option<u64> {
    match data.value.as_ref()? {
        field_data::Value::AtomicValue(AtomicValue { value: Some(atomic_value::Value::Uint64Value(n)) }) => {
            Some(*n)
        }
        _ => None,
    }
}

fn mismatch(detail: impl Into<std::borrow::Cow<'static, str>>) -> Breach {
    Breach::new(SfErrorCode::SfFieldTypeMismatch, "", detail)
}

impl FieldRule {
    /// Checks a value against the rule.
    ///
    /// # Errors
    /// `SF_FIELD_TYPE_MISMATCH`, `SF_VECTOR_INVALID`, `SF_JSON_INVALID` or `SF_JSON_TOO_DEEP`; the path is
    /// empty or below the value.
    pub fn check(&self, data: &FieldData) -> Result<(), Breach> {
        let value = data.value.as_ref().ok_or_else(|| mismatch("has no value"))?;
        if is_null(value) {
            return if self.nullable { Ok(()) } else { Err(mismatch("is null, but not nullable")) };
        }
        match (&self.shape, value) {
            (FieldShape::Scalar(scalar), field_data::Value::AtomicValue(atomic)) => {
                check_atomic(*scalar, atomic)
            }
            (FieldShape::List(scalar), field_data::Value::ListValue(list)) => check_list(*scalar, list),
            (FieldShape::Vector { dimensions, element }, field_data::Value::VectorValue(vector)) => {
                check_vector(*dimensions, *element, vector)
            }
            (FieldShape::ObjectArray(types), field_data::Value::ObjectArrayValue(array)) => {
                check_objects(array, |member| types.get(member).copied())
            }
            _ => Err(mismatch("has another shape than its field")),
        }
    }
}

fn is_null(value: &field_data::Value) -> bool {
    let null = |atomic: &AtomicValue| matches!(atomic.value, Some(atomic_value::Value::NullValue(_)));
    matches!(value, field_data::Value::AtomicValue(atomic) if null(atomic))
}

fn check_list(scalar: ScalarFieldType, list: &ListValue) -> Result<(), Breach> {
    for (i, value) in list.values.iter().enumerate() {
        check_atomic(scalar, value).map_err(|e| e.within(format_args!("[{i}]")))?;
    }
    Ok(())
}

fn check_objects(
    array: &ObjectArrayValue,
    type_of: impl Fn(&str) -> Option<ScalarFieldType>,
) -> Result<(), Breach> {
    for (i, object) in array.objects.iter().enumerate() {
        for (member, value) in &object.members {
            let path = || format!("[{i}].{member}");
            let undeclared = || Breach::new(SfErrorCode::SfFieldUndeclared, path(), "is not declared");
            let scalar = type_of(member).ok_or_else(undeclared)?;
            check_atomic(scalar, value).map_err(|e| e.within(path()))?;
        }
    }
    Ok(())
}

fn check_atomic(scalar: ScalarFieldType, atomic: &AtomicValue) -> Result<(), Breach> {
    use ScalarFieldType as T;
    use atomic_value::Value as V;
    let value = atomic.value.as_ref().ok_or_else(|| mismatch("has no value"))?;
    match (scalar, value) {
        (T::Bool, V::BoolValue(_))
        | (T::Int64 | T::Timestamp, V::Int64Value(_))
        | (T::Uint64, V::Uint64Value(_))
        | (T::Float, V::FloatValue(_))
        | (T::Double, V::DoubleValue(_))
        | (T::String, V::StringValue(_))
        | (T::Bytes, V::BytesValue(_)) => Ok(()),
        (T::Decimal, V::StringValue(text)) if is_decimal(text) => Ok(()),
        (T::Decimal, V::StringValue(_)) => Err(mismatch("is not the text of a decimal number")),
        (T::Json, V::StringValue(text)) => json::check_canonical(text),
        _ => Err(mismatch(format!("is not carried as {} is", scalar.as_str_name()))),
    }
}

/// An optional minus, digits, and optionally a point with digits after it.
fn is_decimal(text: &str) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    match unsigned.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(unsigned),
    }
}

fn check_vector(dimensions: u32, element: VectorElement, vector: &VectorValue) -> Result<(), Breach> {
    use vector_value::Value as V;
    let invalid = |detail: String| Breach::new(SfErrorCode::SfVectorInvalid, "", detail);
    let value = vector.value.as_ref().ok_or_else(|| invalid("has no value".to_owned()))?;
    let (count, finite) = match (element, value) {
        (VectorElement::F32, V::F32Vector(v)) => (v.values.len(), v.values.iter().all(|x| x.is_finite())),
        (VectorElement::F16, V::F16Vector(bytes)) => {
            let (halves, rest) = bytes.as_chunks::<2>();
            if !rest.is_empty() {
                return Err(invalid("has an odd number of bytes".to_owned()));
            }
            (halves.len(), halves.iter().all(|h| f16_is_finite(u16::from_le_bytes(*h))))
        }
        (VectorElement::Int8, V::QuantizedVector(v)) => {
            if v.dimensions != dimensions {
                return Err(invalid(format!("says {} dimensions, not {dimensions}", v.dimensions)));
            }
            (v.codes.len(), v.scale.is_finite() && v.offset.is_finite())
        }
        _ => return Err(mismatch("is not carried as its element type is")),
    };
    if u32::try_from(count) != Ok(dimensions) {
        return Err(invalid(format!("has {count} dimensions, not {dimensions}")));
    }
    if finite { Ok(()) } else { Err(invalid("holds a number that is not finite".to_owned())) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_proto::searchfabric::v1::{DocumentId, FloatVector, NullValue, QuantizedVector};

    use super::super::fixture::definition;
    use super::*;

    fn atomic(value: atomic_value::Value) -> FieldData {
        FieldData { value: Some(field_data::Value::AtomicValue(AtomicValue { value: Some(value) })) }
    }

    fn vector(value: vector_value::Value) -> FieldData {
        FieldData { value: Some(field_data::Value::VectorValue(VectorValue { value: Some(value) })) }
    }

    fn floats(values: &[f32]) -> FieldData {
        vector(vector_value::Value::F32Vector(FloatVector { values: values.to_vec() }))
    }

    fn string(text: &str) -> FieldData {
        atomic(atomic_value::Value::StringValue(text.to_owned()))
    }

    fn null() -> FieldData {
        atomic(atomic_value::Value::NullValue(NullValue::Null.into()))
    }

    fn upsert() -> RowMutation {
        RowMutation {
            kind: RowMutationKind::Upsert.into(),
            doc_id: Some(DocumentId { id_value: Some(document_id::IdValue::U64(5)) }),
            commit_ts: 100,
            schema_version: Some(2),
            fields: [
                ("id".to_owned(), atomic(atomic_value::Value::Uint64Value(5))),
                ("label".to_owned(), null()),
                ("meta".to_owned(), string(r#"{"a":[1]}"#)),
                ("v".to_owned(), floats(&[0.0, 1.0, -2.5])),
            ]
            .into_iter()
            .collect(),
        }
    }

    fn check(change: impl FnOnce(&mut RowMutation), expect: Result<(), (SfErrorCode, &str)>) {
        let schema = Schema::new(&definition()).expect("a valid definition");
        let mut row = upsert();
        change(&mut row);
        let got = schema.check_row(&row, 2).err();
        assert_eq!(got.as_ref().map(|e| (e.code(), e.path())), expect.err());
    }

    fn check_field(name: &str, data: FieldData, expect: Result<(), SfErrorCode>) {
        let path = format!("fields[{name:?}]");
        let set = |row: &mut RowMutation| drop(row.fields.insert(name.to_owned(), data));
        check(set, expect.map_err(|code| (code, path.as_str())));
    }

    #[test]
    fn a_row_of_its_schema_passes_and_a_delete_needs_nothing_more() {
        check(|_| {}, Ok(()));
        let delete = |row: &mut RowMutation| {
            row.kind = RowMutationKind::Delete.into();
            row.fields.clear();
            row.schema_version = None;
        };
        check(delete, Ok(()));
    }

    #[test]
    fn the_identity_is_in_the_row_and_the_same() {
        let id = |n| atomic(atomic_value::Value::Uint64Value(n));
        let wrong = Err((SfErrorCode::SfDocIdInvalid, "doc_id"));
        check(|r| drop(r.fields.insert("id".to_owned(), id(6))), wrong);
        check(|r| drop(r.fields.remove("id")), wrong);
        check(|r| r.doc_id = None, wrong);
        let patch_without_id = |r: &mut RowMutation| {
            r.kind = RowMutationKind::Patch.into();
            r.fields.remove("id");
        };
        check(patch_without_id, Ok(()));
    }

    #[test]
    fn the_schema_version_is_that_of_the_generation() {
        let wrong = Err((SfErrorCode::SfSchemaVersionMismatch, "schema_version"));
        check(|r| r.schema_version = Some(1), wrong);
        check(|r| r.schema_version = None, wrong);
    }

    #[test]
    fn values_are_declared_and_carried_as_their_type_says() {
        check_field("other", string("x"), Err(SfErrorCode::SfFieldUndeclared));
        check_field("label", string("cat"), Ok(()));
        check_field(
            "label",
            atomic(atomic_value::Value::Int64Value(1)),
            Err(SfErrorCode::SfFieldTypeMismatch),
        );
        check_field("label", floats(&[1.0]), Err(SfErrorCode::SfFieldTypeMismatch));
        check_field("label", FieldData { value: None }, Err(SfErrorCode::SfFieldTypeMismatch));
        check_field("meta", null(), Err(SfErrorCode::SfFieldTypeMismatch));
        check_field("meta", string("{ }"), Err(SfErrorCode::SfJsonInvalid));
        check_field("meta", string(&"[".repeat(17)), Err(SfErrorCode::SfJsonTooDeep));
    }

    #[test]
    fn a_vector_has_its_dimensions_and_finite_numbers() {
        check_field("v", floats(&[1.0, 2.0]), Err(SfErrorCode::SfVectorInvalid));
        check_field("v", floats(&[1.0, 2.0, f32::NAN]), Err(SfErrorCode::SfVectorInvalid));
        check_field("v", floats(&[1.0, 2.0, f32::INFINITY]), Err(SfErrorCode::SfVectorInvalid));
        check_field("v", null(), Ok(()));
    }

    #[test]
    fn half_precision_is_two_bytes_each_and_finite() {
        let rule =
            |element| FieldRule { shape: FieldShape::Vector { dimensions: 2, element }, nullable: false };
        let f16 = |bytes: &'static [u8]| vector(vector_value::Value::F16Vector(Bytes::from_static(bytes)));
        let code = |data: &FieldData| rule(VectorElement::F16).check(data).map_err(|e| e.code());
        assert_eq!(code(&f16(&[0x00, 0x3C, 0x00, 0xC0])), Ok(()));
        assert_eq!(code(&f16(&[0x00, 0x3C, 0x00])), Err(SfErrorCode::SfVectorInvalid));
        assert_eq!(code(&f16(&[0x00, 0x3C, 0x00, 0x7C])), Err(SfErrorCode::SfVectorInvalid));
        assert_eq!(code(&floats(&[1.0, 2.0])), Err(SfErrorCode::SfFieldTypeMismatch));
    }

    #[test]
    fn a_quantised_vector_agrees_with_itself_about_its_dimension() {
        let rule = FieldRule {
            shape: FieldShape::Vector { dimensions: 2, element: VectorElement::Int8 },
            nullable: false,
        };
        let quantised = |dimensions, codes: &'static [u8]| {
            let codes = Bytes::from_static(codes);
            let v = QuantizedVector { dimensions, codes, scale: 0.5, offset: 0.0 };
            rule.check(&vector(vector_value::Value::QuantizedVector(v))).map_err(|e| e.code())
        };
        assert_eq!(quantised(2, &[1, 255]), Ok(()));
        assert_eq!(quantised(3, &[1, 255, 0]), Err(SfErrorCode::SfVectorInvalid));
        assert_eq!(quantised(2, &[1]), Err(SfErrorCode::SfVectorInvalid));
    }

    #[test]
    fn decimal_text_is_digits_with_at_most_one_point() {
        for good in ["0", "-12.50", "99999999999999999999.1"] {
            assert!(is_decimal(good), "{good}");
        }
        for bad in ["", "-", "1.", ".5", "+1", "1e3", "1.2.3", "١"] {
            assert!(!is_decimal(bad), "{bad}");
        }
    }
}
