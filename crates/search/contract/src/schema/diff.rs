//! What changes between two generations.

use hashbrown::{HashMap, HashSet};
use tidegate_proto::searchfabric::v1::{
    CollectionSchemaDefinition, FieldSchema, PartitionDisposition, ScalarFieldType, SchemaUpdatePolicy,
    field_schema,
};

use super::invalid;
use crate::error::Breach;

/// The update policy that the difference between two definitions calls for. `prev` is `None` for the first
/// generation.
pub fn classify(
    prev: Option<&CollectionSchemaDefinition>,
    next: &CollectionSchemaDefinition,
) -> SchemaUpdatePolicy {
    let Some(prev) = prev else { return SchemaUpdatePolicy::InitialCreation };
    let deletes =
        next.retired_partitions.iter().any(|p| p.disposition() == PartitionDisposition::DeleteDocuments);
    if deletes || prev.doc_id_mapping != next.doc_id_mapping {
        return SchemaUpdatePolicy::RebuildDocuments;
    }
    let now: HashMap<i64, &FieldSchema> = next.fields.iter().map(|f| (f.field_id, f)).collect();
    let kept = |old: &FieldSchema| now.get(&old.field_id).is_some_and(|new| same_in_index(old, new));
    if prev.fields.iter().all(kept) {
        SchemaUpdatePolicy::Additive
    } else {
        SchemaUpdatePolicy::RebuildFields
    }
}

/// Whether stored documents and their index entries stay right when `old` becomes `new`.
fn same_in_index(old: &FieldSchema, new: &FieldSchema) -> bool {
    old.name == new.name && old.r#type == new.r#type && old.text == new.text
}

/// Checks the rules between a generation and the next.
///
/// # Errors
/// `SF_SCHEMA_INVALID`, with the path below the definition.
pub fn check_successor(
    prev: &CollectionSchemaDefinition,
    next: &CollectionSchemaDefinition,
) -> Result<(), Breach> {
    if prev.truth_mode != next.truth_mode {
        return Err(invalid("truth_mode", "never changes"));
    }
    check_types(prev, next)?;
    check_roster(prev, next)
}

fn check_types(prev: &CollectionSchemaDefinition, next: &CollectionSchemaDefinition) -> Result<(), Breach> {
    let before: HashMap<i64, &FieldSchema> = prev.fields.iter().map(|f| (f.field_id, f)).collect();
    for (i, field) in next.fields.iter().enumerate() {
        let Some(old) = before.get(&field.field_id) else { continue };
        if old.r#type != field.r#type && !widens(old, field) {
            let detail = "differs from the type the field was created with; a new type needs a new field_id";
            return Err(invalid(format!("fields[{i}].type"), detail));
        }
    }
    Ok(())
}

/// FLOAT to DOUBLE is the one change that keeps every stored value.
fn widens(old: &FieldSchema, new: &FieldSchema) -> bool {
    let scalar = |t: ScalarFieldType| Some(field_schema::Type::Scalar(t.into()));
    old.r#type == scalar(ScalarFieldType::Float) && new.r#type == scalar(ScalarFieldType::Double)
}

/// Every partition of `prev` is carried on unchanged or retired, and nothing else is retired.
fn check_roster(prev: &CollectionSchemaDefinition, next: &CollectionSchemaDefinition) -> Result<(), Breach> {
    let live: HashMap<&str, u64> =
        next.source_partitions.iter().map(|p| (p.source_partition.as_str(), p.start_ts)).collect();
    let retired: HashSet<&str> =
        next.retired_partitions.iter().map(|p| p.source_partition.as_str()).collect();
    for old in &prev.source_partitions {
        let name = old.source_partition.as_str();
        match live.get(name) {
            Some(start_ts) if *start_ts != old.start_ts => {
                return Err(invalid("source_partitions", format!("changes the start_ts of `{name}`")));
            }
            None if !retired.contains(name) => {
                return Err(invalid("retired_partitions", format!("does not say what becomes of `{name}`")));
            }
            _ => {}
        }
    }
    let known: HashSet<&str> = prev.source_partitions.iter().map(|p| p.source_partition.as_str()).collect();
    match retired.iter().find(|name| !known.contains(*name)) {
        Some(name) => Err(invalid("retired_partitions", format!("names `{name}`, which fed nothing before"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_proto::searchfabric::v1::{RetiredPartition, SourcePartition, TextAnalysis};

    use super::super::fixture::{definition, scalar};
    use super::*;

    type Change = fn(&mut CollectionSchemaDefinition);

    fn retire(d: &mut CollectionSchemaDefinition, disposition: PartitionDisposition) {
        d.source_partitions = vec![SourcePartition { source_partition: "table:8".to_owned(), start_ts: 20 }];
        d.retired_partitions = vec![RetiredPartition {
            source_partition: "table:7".to_owned(),
            disposition: disposition.into(),
        }];
    }

    #[test]
    fn the_policy_follows_from_the_difference() {
        let cases: [(Change, SchemaUpdatePolicy); 8] = [
            (|_| {}, SchemaUpdatePolicy::Additive),
            (|d| d.fields.push(scalar(9, "n", ScalarFieldType::Int64)), SchemaUpdatePolicy::Additive),
            (|d| d.name = "demo.other".to_owned(), SchemaUpdatePolicy::Additive),
            (|d| retire(d, PartitionDisposition::KeepDocuments), SchemaUpdatePolicy::Additive),
            (|d| drop(d.fields.remove(1)), SchemaUpdatePolicy::RebuildFields),
            (|d| d.fields[1].name = "title".to_owned(), SchemaUpdatePolicy::RebuildFields),
            (|d| d.fields[1].text = Some(TextAnalysis::default()), SchemaUpdatePolicy::RebuildFields),
            (|d| retire(d, PartitionDisposition::DeleteDocuments), SchemaUpdatePolicy::RebuildDocuments),
        ];
        for (i, (change, expect)) in cases.into_iter().enumerate() {
            let mut next = definition();
            change(&mut next);
            assert_eq!(classify(Some(&definition()), &next), expect, "case {i}");
            assert_eq!(check_successor(&definition(), &next), Ok(()), "case {i}");
        }
        assert_eq!(classify(None, &definition()), SchemaUpdatePolicy::InitialCreation);
    }

    #[test]
    fn a_field_keeps_its_type_except_that_float_may_become_double() {
        let with = |t| {
            let mut d = definition();
            d.fields.push(scalar(9, "n", t));
            d
        };
        let float = with(ScalarFieldType::Float);
        assert_eq!(check_successor(&float, &with(ScalarFieldType::Double)), Ok(()));
        let breach = check_successor(&float, &with(ScalarFieldType::String)).expect_err("other type");
        assert_eq!(breach.path(), "fields[4].type");
    }

    #[test]
    fn no_partition_is_forgotten_or_invented() {
        let mut forgotten = definition();
        retire(&mut forgotten, PartitionDisposition::DeleteDocuments);
        let foreign = forgotten.clone();
        forgotten.retired_partitions.clear();
        let paths = [
            check_successor(&definition(), &forgotten).expect_err("forgotten").path().to_owned(),
            check_successor(&foreign, &foreign).expect_err("invented").path().to_owned(),
        ];
        assert_eq!(paths, ["retired_partitions", "retired_partitions"]);
        let mut moved = definition();
        moved.source_partitions[0].start_ts = 11;
        assert_eq!(check_successor(&definition(), &moved).expect_err("moved").path(), "source_partitions");
    }
}
