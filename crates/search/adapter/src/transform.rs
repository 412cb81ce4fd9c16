//! Transformer: from changed rows to row mutations.
//!
//! An insert or update becomes an upsert of the whole new row, a delete becomes a delete. An update that
//! changes the document id becomes a delete of the old document and an upsert of the new one. All rows of one
//! commit timestamp are looked at together, so that two rows which swap their ids in one transaction end as
//! two upserts.

use std::sync::Arc;

use hashbrown::HashSet;
use tidegate_codec::event::OwnedRow;
use tidegate_codec::row::{RowView, TableLayout};
use tidegate_codec::value::Value;
use tidegate_core::{ColumnId, CommitTs};
use tidegate_mini::bridge::SealedRow;
use tidegate_proto::searchfabric::v1::{
    CollectionSchemaDefinition, DocumentId, FieldData, RowMutation, RowMutationKind, document_id,
    field_schema,
};

use crate::error::AdapterError;
use crate::lineage::Generation;
use crate::value::{ValueError, field_data, number_list};

/// Where the fields of a generation are in the rows of one table version. Built once and reused while both
/// stay.
#[derive(Debug)]
struct Plan {
    layout: Arc<TableLayout>,
    definition: Arc<CollectionSchemaDefinition>,
    schema_version: u32,
    fields: Vec<FieldPlan>,
    doc_id: usize,
}

#[derive(Debug)]
struct FieldPlan {
    name: String,
    column: usize,
    as_list: bool,
    dimensions: Option<u32>,
}

/// Turns rows of one collection into mutations.
#[derive(Debug, Default)]
pub struct Transformer {
    plan: Option<Plan>,
}

impl Transformer {
    /// The mutations of `rows`, which are in commit order and of one source partition, under `generation`.
    ///
    /// # Errors
    /// A row that cannot be decoded, has no exact form, or was written under another schema than the
    /// generation's.
    pub fn transform(
        &mut self,
        rows: &[SealedRow<OwnedRow>],
        generation: &Generation,
    ) -> Result<Vec<RowMutation>, AdapterError> {
        let mut mutations = Vec::with_capacity(rows.len());
        for commit in rows.chunk_by(|a, b| a.commit_ts == b.commit_ts) {
            let start = mutations.len();
            for row in commit {
                self.row(&row.row, generation, &mut mutations)?;
            }
            drop_moved(&mut mutations, start);
        }
        Ok(mutations)
    }

    fn row(
        &mut self,
        row: &OwnedRow,
        generation: &Generation,
        out: &mut Vec<RowMutation>,
    ) -> Result<(), AdapterError> {
        let plan = self.plan_for(row, generation)?;
        let changed = row.view().map_err(AdapterError::Decode)?;
        let commit_ts = row.commit_ts();
        let old = changed.pre.map(|pre| plan.doc_id(&pre, row)).transpose()?;
        let new = changed.row.map(|new| plan.doc_id(&new, row)).transpose()?;
        if let Some(old) = old.filter(|old| new != Some(*old)) {
            out.push(delete(old, commit_ts));
        }
        if let Some((view, doc_id)) = changed.row.zip(new) {
            out.push(plan.upsert(&view, doc_id, row)?);
        }
        Ok(())
    }

    fn plan_for(&mut self, row: &OwnedRow, generation: &Generation) -> Result<&Plan, AdapterError> {
        let fits = |plan: &Plan| {
            Arc::ptr_eq(&plan.layout, &row.layout) && Arc::ptr_eq(&plan.definition, &generation.definition)
        };
        match self.plan.take().filter(fits) {
            Some(plan) => Ok(self.plan.insert(plan)),
            None => Ok(self.plan.insert(Plan::new(row, generation)?)),
        }
    }
}

impl Plan {
    fn new(row: &OwnedRow, generation: &Generation) -> Result<Self, AdapterError> {
        let info = row.layout.table();
        let mismatch = |field: &str| AdapterError::SchemaMismatch {
            table: generation.definition.name.clone(),
            field: field.to_owned(),
            schema_version: generation.version,
            commit_ts: row.commit_ts(),
        };
        let mut fields = Vec::with_capacity(generation.definition.fields.len());
        for field in &generation.definition.fields {
            let found = info.column_by_id(ColumnId(field.field_id));
            let (column, _) = found.ok_or_else(|| mismatch(&field.name))?;
            let dimensions = match &field.r#type {
                Some(field_schema::Type::Vector(spec)) => Some(spec.dimensions),
                _ => None,
            };
            let as_list = matches!(field.r#type, Some(field_schema::Type::ListOf(_)));
            fields.push(FieldPlan { name: field.name.clone(), column, as_list, dimensions });
        }
        let doc_id_field = generation.schema.doc_id_field();
        let doc_id = fields.iter().find(|f| f.name == doc_id_field).map(|f| f.column);
        Ok(Self {
            layout: Arc::clone(&row.layout),
            definition: Arc::clone(&generation.definition),
            schema_version: generation.version,
            doc_id: doc_id.ok_or_else(|| mismatch(doc_id_field))?,
            fields,
        })
    }

    fn doc_id(&self, view: &RowView<'_>, row: &OwnedRow) -> Result<u64, AdapterError> {
        match view.column(self.doc_id).map_err(AdapterError::Decode)? {
            Value::UInt(id) => Ok(id),
            _ => Err(AdapterError::NoDocId {
                table: self.definition.name.clone(),
                partition: row.table_id,
                commit_ts: row.commit_ts(),
            }),
        }
    }

    fn upsert(&self, view: &RowView<'_>, doc_id: u64, row: &OwnedRow) -> Result<RowMutation, AdapterError> {
        let mut mutation = mutation(RowMutationKind::Upsert, doc_id, row.commit_ts());
        mutation.schema_version = Some(self.schema_version);
        for field in &self.fields {
            let value = view.column(field.column).map_err(AdapterError::Decode)?;
            let data = field.data(value).map_err(|reason| AdapterError::Value {
                table: self.definition.name.clone(),
                column: field.name.clone(),
                partition: row.table_id,
                commit_ts: row.commit_ts(),
                reason,
            })?;
            mutation.fields.insert(field.name.clone(), data);
        }
        Ok(mutation)
    }
}

impl FieldPlan {
    fn data(&self, value: Value<'_>) -> Result<FieldData, ValueError> {
        match value {
            Value::Vector(v) if self.as_list => number_list(&v),
            Value::Vector(v) if u32::try_from(v.dimension()).ok() != self.dimensions => {
                Err(ValueError::Dimension)
            }
            value => field_data(value),
        }
    }
}

fn mutation(kind: RowMutationKind, doc_id: u64, commit_ts: CommitTs) -> RowMutation {
    RowMutation {
        kind: kind.into(),
        doc_id: Some(DocumentId { id_value: Some(document_id::IdValue::U64(doc_id)) }),
        commit_ts: commit_ts.get(),
        ..RowMutation::default()
    }
}

fn delete(doc_id: u64, commit_ts: CommitTs) -> RowMutation {
    mutation(RowMutationKind::Delete, doc_id, commit_ts)
}

fn doc_id_of(mutation: &RowMutation) -> Option<u64> {
    mutation.doc_id.as_ref()?.id_value.as_ref().map(|document_id::IdValue::U64(id)| *id)
}

/// Among the mutations from `start` on, which are of one transaction, removes deletes of documents that the
/// same transaction writes: the document moved to another row, it did not go away.
fn drop_moved(mutations: &mut Vec<RowMutation>, start: usize) {
    let commit = mutations.get(start..).unwrap_or_default();
    let is_delete = |m: &RowMutation| m.kind() == RowMutationKind::Delete;
    // Most transactions change one row of a table, and few both write and delete.
    if commit.len() < 2 || !commit.iter().any(is_delete) {
        return;
    }
    let written: HashSet<u64> = commit.iter().filter(|m| !is_delete(m)).filter_map(doc_id_of).collect();
    let mut at = 0;
    mutations.retain(|m| {
        at += 1;
        at <= start || !is_delete(m) || doc_id_of(m).is_none_or(|id| !written.contains(&id))
    });
}
