//! The rules that one definition keeps by itself.

use hashbrown::HashSet;
use tidegate_proto::searchfabric::v1::{
    CollectionSchemaDefinition, CollectionTruthMode, FieldSchema, PartitionDisposition, ScalarFieldType,
    UndeclaredFieldPolicy, field_schema,
};

use super::{FieldRule, FieldShape, invalid};
use crate::error::Breach;
use crate::limits::{
    FIELD_NAME_CHARS_MAX, FIELDS_MAX, ID_CHARS_MAX, NAME_CHARS_MAX, SOURCE_PARTITIONS_MAX,
    VECTOR_DIMENSIONS_MAX, check_id,
};

/// Checks everything that a definition must keep on its own.
///
/// # Errors
/// `SF_SCHEMA_INVALID`, `SF_INVALID_ARGUMENT` or `SF_LIMIT_EXCEEDED`, with the path below the definition.
pub fn check_definition(definition: &CollectionSchemaDefinition) -> Result<(), Breach> {
    check_id(&definition.name, "name", NAME_CHARS_MAX)?;
    if definition.truth_mode() == CollectionTruthMode::Unspecified {
        return Err(invalid("truth_mode", "must be specified"));
    }
    if definition.undeclared_field_policy() != UndeclaredFieldPolicy::Reject {
        return Err(invalid("undeclared_field_policy", "must be reject"));
    }
    check_fields(&definition.fields)?;
    check_doc_id_mapping(definition)?;
    check_partitions(definition)
}

fn check_fields(fields: &[FieldSchema]) -> Result<(), Breach> {
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        return Err(invalid("fields", format!("must have 1 to {FIELDS_MAX} entries, not {}", fields.len())));
    }
    let (mut names, mut ids) = (HashSet::new(), HashSet::new());
    for (i, field) in fields.iter().enumerate() {
        let path = |part: &str| format!("fields[{i}].{part}");
        check_id(&field.name, &path("name"), FIELD_NAME_CHARS_MAX)?;
        if !names.insert(field.name.as_str()) {
            return Err(invalid(path("name"), format!("`{}` is declared twice", field.name)));
        }
        if !ids.insert(field.field_id) {
            return Err(invalid(path("field_id"), format!("{} is used twice", field.field_id)));
        }
        check_type(field).map_err(|e| e.within(format_args!("fields[{i}]")))?;
    }
    Ok(())
}

fn check_type(field: &FieldSchema) -> Result<(), Breach> {
    let shape = field.r#type.as_ref().and_then(FieldShape::new);
    let shape = shape.ok_or_else(|| invalid("type", "is missing or not known"))?;
    if let FieldShape::Vector { dimensions, .. } = shape
        && dimensions > VECTOR_DIMENSIONS_MAX
    {
        return Err(invalid("type", format!("has {dimensions} dimensions, at most {VECTOR_DIMENSIONS_MAX}")));
    }
    match &field.fill_value {
        Some(fill) => FieldRule { shape, nullable: field.nullable }
            .check(fill)
            .map_err(|e| invalid("fill_value", e.to_string())),
        None => Ok(()),
    }
}

fn check_doc_id_mapping(definition: &CollectionSchemaDefinition) -> Result<(), Breach> {
    let path = "doc_id_mapping";
    let mapping = definition.doc_id_mapping.as_ref().ok_or_else(|| invalid(path, "is missing"))?;
    let u64_type = field_schema::Type::Scalar(ScalarFieldType::Uint64.into());
    let field = definition.fields.iter().find(|f| f.name == mapping.source_field);
    let field =
        field.ok_or_else(|| invalid(path, format!("names `{}`, which is no field", mapping.source_field)))?;
    if mapping.r#type() != ScalarFieldType::Uint64 || field.r#type != Some(u64_type) || field.nullable {
        return Err(invalid(path, format!("needs `{}` to be a uint64 that is never null", field.name)));
    }
    Ok(())
}

fn check_partitions(definition: &CollectionSchemaDefinition) -> Result<(), Breach> {
    let count = definition.source_partitions.len();
    if count == 0 || count > SOURCE_PARTITIONS_MAX {
        let detail = format!("must have 1 to {SOURCE_PARTITIONS_MAX} entries, not {count}");
        return Err(invalid("source_partitions", detail));
    }
    let mut seen = HashSet::new();
    let live = definition.source_partitions.iter().map(|p| ("source_partitions", &p.source_partition));
    let retired = definition.retired_partitions.iter().map(|p| ("retired_partitions", &p.source_partition));
    for (path, name) in live.chain(retired) {
        check_id(name, path, ID_CHARS_MAX)?;
        if !seen.insert(name) {
            return Err(invalid(path, format!("names `{name}` twice")));
        }
    }
    for retired in &definition.retired_partitions {
        if retired.disposition() == PartitionDisposition::Unspecified {
            return Err(invalid("retired_partitions", "has an entry without disposition"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_proto::searchfabric::v1::{
        AtomicValue, FieldData, RetiredPartition, atomic_value, field_data,
    };

    use super::super::fixture::{definition, scalar};
    use super::*;
    use crate::error::SfErrorCode;

    fn check(change: impl FnOnce(&mut CollectionSchemaDefinition), code: SfErrorCode, path: &str) {
        let mut changed = definition();
        change(&mut changed);
        let breach = check_definition(&changed).expect_err("a broken rule");
        assert_eq!((breach.code(), breach.path()), (code, path), "{breach}");
    }

    #[test]
    fn the_fixture_keeps_every_rule() {
        assert_eq!(check_definition(&definition()), Ok(()));
    }

    #[test]
    fn names_and_modes_are_required() {
        check(|d| d.name.clear(), SfErrorCode::SfInvalidArgument, "name");
        check(|d| d.truth_mode = 0, SfErrorCode::SfSchemaInvalid, "truth_mode");
        check(|d| d.undeclared_field_policy = 0, SfErrorCode::SfSchemaInvalid, "undeclared_field_policy");
    }

    #[test]
    fn fields_are_unique_by_name_and_by_id() {
        let again = |id, name: &str| scalar(id, name, ScalarFieldType::String);
        check(|d| d.fields.push(again(9, "label")), SfErrorCode::SfSchemaInvalid, "fields[4].name");
        check(|d| d.fields.push(again(2, "other")), SfErrorCode::SfSchemaInvalid, "fields[4].field_id");
        check(|d| d.fields.clear(), SfErrorCode::SfSchemaInvalid, "fields");
    }

    #[test]
    fn a_field_has_a_known_type_and_a_fill_value_of_it() {
        check(|d| d.fields[1].r#type = None, SfErrorCode::SfSchemaInvalid, "fields[1].type");
        let number = atomic_value::Value::Int64Value(1);
        let fill =
            FieldData { value: Some(field_data::Value::AtomicValue(AtomicValue { value: Some(number) })) };
        check(|d| d.fields[1].fill_value = Some(fill), SfErrorCode::SfSchemaInvalid, "fields[1].fill_value");
    }

    #[test]
    fn the_identity_is_a_declared_u64_that_is_never_null() {
        check(|d| d.doc_id_mapping = None, SfErrorCode::SfSchemaInvalid, "doc_id_mapping");
        check(|d| d.fields[0].nullable = true, SfErrorCode::SfSchemaInvalid, "doc_id_mapping");
        let signed = Some(field_schema::Type::Scalar(ScalarFieldType::Int64.into()));
        check(|d| d.fields[0].r#type = signed, SfErrorCode::SfSchemaInvalid, "doc_id_mapping");
    }

    #[test]
    fn a_partition_is_listed_once_and_a_retired_one_says_what_happens() {
        check(|d| d.source_partitions.clear(), SfErrorCode::SfSchemaInvalid, "source_partitions");
        let retired = |name: &str, disposition: PartitionDisposition| RetiredPartition {
            source_partition: name.to_owned(),
            disposition: disposition.into(),
        };
        let twice = retired("table:7", PartitionDisposition::KeepDocuments);
        check(|d| d.retired_partitions.push(twice), SfErrorCode::SfSchemaInvalid, "retired_partitions");
        let unspecified = retired("table:8", PartitionDisposition::Unspecified);
        check(|d| d.retired_partitions.push(unspecified), SfErrorCode::SfSchemaInvalid, "retired_partitions");
    }
}
