//! Stored documents as readers see them.

use serde_json::{Map, Value as Json};
use tidegate_core::CommitTs;
use tidegate_proto::searchfabric::v1::{AtomicValue, FieldData, FieldSchema, ScalarFieldType};
use tidegate_proto::searchfabric::v1::{atomic_value, field_data, field_schema};

use super::response::Document;
use crate::catalog::Collection;
use crate::content::Content;
use crate::error::FabricError;
use crate::ingest::Record;
use crate::text::document::{atomic_json, components, object_json};

/// A live document with what is needed to show it.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) id: u64,
    pub(crate) version: CommitTs,
    pub(crate) partition: u32,
    pub(crate) schema_version: u32,
    pub(crate) content: Content,
}

impl Loaded {
    /// Reads a record; `None` for a tombstone.
    pub(crate) fn new(id: u64, record: &Record) -> Result<Option<Self>, FabricError> {
        let content = crate::engine::content(record)?;
        Ok(content.map(|content| Self {
            id,
            version: record.version,
            partition: record.partition,
            schema_version: record.schema_version,
            content,
        }))
    }

    /// Its fields today, as the contract carries them.
    pub(crate) fn fields<'a>(
        &'a self,
        collection: &'a Collection,
    ) -> impl Iterator<Item = (&'a FieldSchema, &'a FieldData)> {
        collection.lineage.fields(&self.content, self.schema_version)
    }

    /// As plain data. `keep` says which fields are wanted.
    pub(crate) fn document(&self, collection: &Collection, keep: impl Fn(&str) -> bool) -> Document {
        let fields = self.fields(collection).filter(|(field, _)| keep(&field.name));
        Document {
            id: self.id,
            version: self.version,
            partition: self.partition_name(collection),
            schema_version: u64::from(self.schema_version),
            fields: fields.map(|(field, value)| (field.name.clone(), json(field, value))).collect(),
        }
    }

    /// The name of the partition that wrote it.
    pub(crate) fn partition_name(&self, collection: &Collection) -> String {
        let writer = collection.partitions.values().find(|partition| partition.number == self.partition);
        writer.map_or_else(String::new, |partition| partition.name.clone())
    }
}

/// A value as JSON.
fn json(field: &FieldSchema, value: &FieldData) -> Json {
    match &value.value {
        None => Json::Null,
        Some(field_data::Value::AtomicValue(atomic)) => atomic_of(field, atomic),
        Some(field_data::Value::VectorValue(vector)) => {
            components(vector).map_or(Json::Null, |values| values.into_iter().map(Json::from).collect())
        }
        Some(field_data::Value::ListValue(list)) => list.values.iter().map(atomic_json).collect(),
        Some(field_data::Value::ObjectArrayValue(array)) => {
            Json::Array(array.objects.iter().map(object_json).collect::<Vec<Json>>())
        }
    }
}

fn atomic_of(field: &FieldSchema, atomic: &AtomicValue) -> Json {
    let is_json = matches!(field.r#type, Some(field_schema::Type::Scalar(scalar))
        if scalar == i32::from(ScalarFieldType::Json));
    match &atomic.value {
        Some(atomic_value::Value::StringValue(text)) if is_json => {
            serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.clone()))
        }
        _ => atomic_json(atomic),
    }
}

/// All fields of a document, for highlighting.
pub(crate) fn all_fields(loaded: &Loaded, collection: &Collection) -> Map<String, Json> {
    loaded.document(collection, |_| true).fields
}
