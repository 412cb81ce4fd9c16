//! One table to one definition.

use std::sync::Arc;

use hashbrown::HashMap;
use tidegate_codec::key::Handle;
use tidegate_codec::meta::{ColumnInfo, TableInfo};
use tidegate_codec::row::TableLayout;
use tidegate_core::ColumnId;
use tidegate_proto::searchfabric::v1::{
    CollectionSchemaDefinition, CollectionTruthMode, DocIdMapping, FieldData, FieldSchema, RetiredPartition,
    ScalarFieldType, SourcePartition, TextAnalysis, UndeclaredFieldPolicy, field_schema::Type,
};

use super::{Inadmissible, Reread, Roster, SchemaResolver, SourceTable, field};
use crate::error::AdapterError;
use crate::value::field_data;

/// A row of format v2 that mentions no column (`reference/tidb-keys-and-rows.md` §4): reading a column of it
/// gives what old rows hold for a column that was added later.
const ROW_WITHOUT_COLUMNS: [u8; 6] = [128, 0, 0, 0, 0, 0];

impl SchemaResolver {
    /// The definition that `table` has after the change described by `roster`. `prev` is the definition in
    /// force before; what it says about partitions that stay is kept, and partitions that are no longer there
    /// are retired.
    ///
    /// # Errors
    /// [`AdapterError::Inadmissible`], or a default value that cannot be decoded.
    pub fn define(
        &self,
        table: &SourceTable,
        prev: Option<&CollectionSchemaDefinition>,
        roster: &Roster,
    ) -> Result<CollectionSchemaDefinition, AdapterError> {
        let doc_id = self.doc_id_column(table).map_err(|reason| inadmissible(table, reason))?;
        let fields = self.fields(table, prev, roster)?;
        let (source_partitions, retired_partitions) = self.partitions(&table.info, prev, roster);
        Ok(CollectionSchemaDefinition {
            name: table.full_name(),
            truth_mode: CollectionTruthMode::External.into(),
            doc_id_mapping: Some(DocIdMapping {
                source_field: doc_id.name.original.clone(),
                r#type: ScalarFieldType::Uint64.into(),
            }),
            fields,
            undeclared_field_policy: UndeclaredFieldPolicy::Reject.into(),
            source_partitions,
            retired_partitions,
            replay_context: Some(roster.context.clone()),
        })
    }

    /// The column that holds the document id: the configured one, or the table's own key if that is a single
    /// unsigned integer.
    fn doc_id_column<'a>(&self, table: &'a SourceTable) -> Result<&'a ColumnInfo, Inadmissible> {
        let name = table.full_name();
        if let Some(configured) = self.doc_ids.iter().find(|d| d.table.eq_ignore_ascii_case(&name)) {
            return configured_doc_id(&table.info, &configured.column);
        }
        let key = table.info.handle_key().ok_or(Inadmissible::NoDocId)?;
        let [index] = key.as_slice() else { return Err(Inadmissible::NoDocId) };
        let column = table.info.column_at(*index).ok_or(Inadmissible::NoDocId)?;
        if is_unsigned_integer(column) { Ok(column) } else { Err(Inadmissible::NoDocId) }
    }

    fn fields(
        &self,
        table: &SourceTable,
        prev: Option<&CollectionSchemaDefinition>,
        roster: &Roster,
    ) -> Result<Vec<FieldSchema>, AdapterError> {
        let layout = TableLayout::new(Arc::clone(&table.info));
        let known = |id: i64| prev.and_then(|d| d.fields.iter().find(|f| f.field_id == id));
        stored_columns(&table.info)
            .map(|(index, column)| {
                let mut field = self.field(table, column)?;
                match (prev, known(field.field_id)) {
                    // A rewritten column has no common value; its rows are read again.
                    (Some(prev), None) if is_rewritten(prev, &field, table, roster) => {}
                    (Some(_), None) => field.fill_value = Some(fill_value(table, &layout, index)?),
                    // What it was filled with stays part of its definition, so that an unrelated DDL changes
                    // nothing.
                    (_, Some(old)) => field.fill_value.clone_from(&old.fill_value),
                    (None, None) => {}
                }
                Ok(field)
            })
            .collect()
    }

    fn field(&self, table: &SourceTable, column: &ColumnInfo) -> Result<FieldSchema, AdapterError> {
        let name = column.name.original.clone();
        let r#type = field::field_type(&column.field_type)
            .map_err(|reason| inadmissible(table, Inadmissible::Column { column: name.clone(), reason }))?;
        Ok(FieldSchema {
            text: self.text_analysis(table, column),
            name,
            field_id: column.id.get(),
            r#type: Some(r#type),
            nullable: !column.field_type.not_null(),
            fill_value: None,
            source_type: column.field_type.sql_text(),
        })
    }

    fn text_analysis(&self, table: &SourceTable, column: &ColumnInfo) -> Option<TextAnalysis> {
        let default = field::text_analysis(&column.field_type)?;
        let full_name = format!("{}.{}", table.full_name(), column.name.original);
        let Some(hint) = self.text.iter().find(|h| h.column.eq_ignore_ascii_case(&full_name)) else {
            return Some(default);
        };
        Some(TextAnalysis {
            language: hint.language.clone(),
            path_languages: hint.path_languages.iter().cloned().collect(),
            keyword: hint.keyword,
        })
    }

    fn partitions(
        &self,
        info: &TableInfo,
        prev: Option<&CollectionSchemaDefinition>,
        roster: &Roster,
    ) -> (Vec<SourcePartition>, Vec<RetiredPartition>) {
        let before: HashMap<&str, u64> = prev
            .map(|d| d.source_partitions.iter().map(|p| (p.source_partition.as_str(), p.start_ts)).collect())
            .unwrap_or_default();
        let live: Vec<SourcePartition> = info
            .physical_ids()
            .into_iter()
            .map(|id| {
                let source_partition = self.partition(id).to_string();
                let read_from = roster.read_from.get(&id).map_or(roster.ts.get(), |ts| ts.get());
                // What a partition holds already comes at the timestamp of the change itself.
                let begin = read_from.min(roster.ts.prev().get());
                let start_ts = before.get(source_partition.as_str()).copied().unwrap_or(begin);
                SourcePartition { source_partition, start_ts }
            })
            .collect();
        let gone = |name: &&str| !live.iter().any(|p| p.source_partition == **name);
        let mut retired: Vec<&str> = before.keys().copied().filter(gone).collect();
        retired.sort_unstable();
        let retire = |name: &str| RetiredPartition {
            source_partition: name.to_owned(),
            disposition: roster.disposition.into(),
        };
        let retired = retired.into_iter().map(retire).collect();
        (live, retired)
    }
}

/// The columns that rows hold and SQL can name. Virtual generated columns are not stored, so there is nothing
/// to send.
pub(crate) fn stored_columns(info: &TableInfo) -> impl Iterator<Item = (usize, &ColumnInfo)> {
    info.public_columns().filter(|(_, column)| !column.is_virtual())
}

fn configured_doc_id<'a>(info: &'a TableInfo, name: &str) -> Result<&'a ColumnInfo, Inadmissible> {
    let bad = |problem| Inadmissible::BadDocId { column: name.to_owned(), problem };
    let (index, column) = info.column_by_name(name).ok_or_else(|| bad("does not exist"))?;
    if !is_unsigned_integer(column) {
        return Err(bad("is not an unsigned integer"));
    }
    if !column.field_type.not_null() {
        return Err(bad("may be NULL"));
    }
    let alone = |columns: &[usize]| matches!(columns, [only] if *only == index);
    let unique = info.pk_handle_column() == Some(index)
        || info.indexes.iter().any(|i| {
            i.is_unique && i.is_public() && alone(&i.columns.iter().map(|c| c.offset).collect::<Vec<_>>())
        });
    if unique { Ok(column) } else { Err(bad("has no unique index of its own")) }
}

fn is_unsigned_integer(column: &ColumnInfo) -> bool {
    column.field_type.tp.is_integer() && column.field_type.unsigned()
}

fn fill_value(table: &SourceTable, layout: &TableLayout, index: usize) -> Result<FieldData, AdapterError> {
    let row = layout.row(Handle::Int(0), &ROW_WITHOUT_COLUMNS).map_err(AdapterError::Decode)?;
    let value = row.column(index).map_err(AdapterError::Decode)?;
    field_data(value).map_err(|reason| AdapterError::Default { table: table.full_name(), reason })
}

fn inadmissible(table: &SourceTable, reason: Inadmissible) -> AdapterError {
    AdapterError::Inadmissible { table: table.full_name(), reason }
}

/// Whether the change from `prev` rewrote the stored values of the column `new` of `table`: a column with an
/// old name and a new id, or an old id and another type, or one that came while another went. FLOAT to DOUBLE
/// keeps every value.
pub(crate) fn is_rewritten(
    prev: &CollectionSchemaDefinition,
    new: &FieldSchema,
    table: &SourceTable,
    roster: &Roster,
) -> bool {
    let scalar = |t: ScalarFieldType| Some(Type::Scalar(t.into()));
    let widened = |old: &FieldSchema| {
        old.r#type == scalar(ScalarFieldType::Float) && new.r#type == scalar(ScalarFieldType::Double)
    };
    let gone = |old: &FieldSchema| table.info.column_by_id(ColumnId(old.field_id)).is_none();
    match prev.fields.iter().find(|old| old.field_id == new.field_id) {
        Some(old) => old.r#type != new.r#type && !widened(old),
        None if prev.fields.iter().any(|old| old.name == new.name) => true,
        None => roster.reread == Reread::Replacing && prev.fields.iter().any(gone),
    }
}

/// Whether two definitions mean the same to an index, whatever DDL made them. What a generation retired
/// concerns only the moment it began.
pub(crate) fn same_meaning(a: &CollectionSchemaDefinition, b: &CollectionSchemaDefinition) -> bool {
    let core = |d: &CollectionSchemaDefinition| CollectionSchemaDefinition {
        replay_context: None,
        retired_partitions: Vec::new(),
        fields: d.fields.iter().map(|f| FieldSchema { source_type: String::new(), ..f.clone() }).collect(),
        ..d.clone()
    };
    // A table that was truncated has other partitions, so comparing these is enough to see it.
    core(a) == core(b)
}
