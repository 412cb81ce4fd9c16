//! What a stored document means today: the fields of the newest generation, by name, with what older
//! documents hold for fields that came after them.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;
use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_proto::searchfabric::v1::{
    CollectionSchemaDefinition, FieldData, FieldSchema, SchemaGeneration,
};

use crate::content::Content;

/// The newest definition together with what its predecessors left behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lineage {
    /// The newest definition.
    pub(crate) definition: Arc<CollectionSchemaDefinition>,
    /// Its version.
    pub(crate) schema_version: u32,
    /// By field id: the version that brought the field, and what documents below it hold.
    fills: HashMap<i64, (u32, FieldData)>,
}

impl Lineage {
    /// The meaning of documents after these generations, oldest first.
    pub(crate) fn new<'a>(generations: impl IntoIterator<Item = &'a SchemaGeneration>) -> Self {
        let mut lineage = Self::default();
        for generation in generations {
            let Some(definition) = &generation.definition else { continue };
            for field in &definition.fields {
                if let Some(fill) = &field.fill_value {
                    let entry = (generation.schema_version, fill.clone());
                    lineage.fills.entry(field.field_id).or_insert(entry);
                }
            }
            lineage.definition = Arc::new(definition.clone());
            lineage.schema_version = generation.schema_version;
        }
        lineage
    }

    /// The fields a document has today, in the order of the definition.
    pub(crate) fn fields<'a>(
        &'a self,
        content: &'a Content,
        schema_version: u32,
    ) -> impl Iterator<Item = (&'a FieldSchema, &'a FieldData)> {
        self.definition.fields.iter().filter_map(move |field| {
            let value = content.get(field.field_id).or_else(|| self.fill(field.field_id, schema_version));
            Some((field, value?))
        })
    }

    /// What a document written under `schema_version` holds for a field it never had.
    pub(crate) fn fill(&self, field_id: i64, schema_version: u32) -> Option<&FieldData> {
        self.fills.get(&field_id).filter(|(since, _)| schema_version < *since).map(|(_, value)| value)
    }

    /// The content as if it had been written under the newest generation.
    pub(crate) fn modern<'a>(&self, content: &'a Content, schema_version: u32) -> Cow<'a, Content> {
        let missing = self
            .fills
            .keys()
            .any(|id| self.fill(*id, schema_version).is_some() && content.get(*id).is_none());
        if !missing {
            return Cow::Borrowed(content);
        }
        let fields =
            self.fields(content, schema_version).map(|(field, value)| (field.field_id, value.clone()));
        Cow::Owned(Content::new(fields.collect()))
    }
}

/// Values by name as values by field id.
pub(crate) fn content_of(
    definition: &CollectionSchemaDefinition,
    fields: impl IntoIterator<Item = (String, FieldData)>,
) -> Result<Content, Breach> {
    let mut ids = HashMap::with_capacity(definition.fields.len());
    ids.extend(definition.fields.iter().map(|field| (field.name.as_str(), field.field_id)));
    let by_id = fields.into_iter().map(|(name, value)| match ids.get(name.as_str()) {
        Some(id) => Ok((*id, value)),
        None => {
            let path = format!("fields[{name:?}]");
            Err(Breach::new(SfErrorCode::SfFieldUndeclared, path, "is not declared"))
        }
    });
    Ok(Content::new(by_id.collect::<Result<_, _>>()?))
}
