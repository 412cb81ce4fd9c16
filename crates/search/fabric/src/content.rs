//! The fields of a document as they are stored: by field id, so that renaming a column rewrites nothing, and
//! in ascending order, so that equal content has equal bytes.

use std::collections::BTreeMap;

use prost::Message;
use tidegate_proto::searchfabric::v1::{FieldData, atomic_value, field_data};

/// One stored field.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredField {
    /// [`tidegate_proto::searchfabric::v1::FieldSchema::field_id`].
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    /// The value.
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<FieldData>,
}

/// All stored fields of a document, ascending by id.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Content {
    #[prost(message, repeated, tag = "1")]
    pub(crate) fields: Vec<StoredField>,
}

impl Content {
    /// Content from values by field id.
    pub(crate) fn new(fields: BTreeMap<i64, FieldData>) -> Self {
        let fields = fields.into_iter().map(|(id, value)| StoredField { id, value: Some(value) });
        Self { fields: fields.collect() }
    }

    /// The value of a field; `None` if it is missing.
    pub(crate) fn get(&self, id: i64) -> Option<&FieldData> {
        let at = self.fields.binary_search_by_key(&id, |field| field.id).ok()?;
        self.fields.get(at)?.value.as_ref()
    }

    /// This content with the fields of `patch` put over it.
    pub(crate) fn patched(self, patch: Self) -> Self {
        let by_id = |content: Self| content.fields.into_iter().filter_map(|f| Some((f.id, f.value?)));
        let mut fields: BTreeMap<i64, FieldData> = by_id(self).collect();
        fields.extend(by_id(patch));
        Self::new(fields)
    }
}

/// Whether a value is the explicit null.
pub(crate) fn is_null(value: &FieldData) -> bool {
    matches!(&value.value, Some(field_data::Value::AtomicValue(atomic))
        if matches!(atomic.value, Some(atomic_value::Value::NullValue(_)) | None))
}
