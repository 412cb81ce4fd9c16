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
    CollectionSchemaDefinition, DocumentId, FieldData, FieldSchema, RowMutation, RowMutationKind,
    ScalarFieldType, document_id, field_schema::Type,
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
    kind: FieldKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    Text,
    Vector(u32),
    List,
    Other,
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
            fields.push(FieldPlan { name: field.name.clone(), column, kind: FieldKind::of(field) });
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

impl FieldKind {
    fn of(field: &FieldSchema) -> Self {
        match &field.r#type {
            Some(Type::Vector(spec)) => Self::Vector(spec.dimensions),
            Some(Type::ListOf(_)) => Self::List,
            Some(Type::Scalar(scalar)) if *scalar == i32::from(ScalarFieldType::String) => Self::Text,
            _ => Self::Other,
        }
    }
}

impl FieldPlan {
    fn data(&self, value: Value<'_>) -> Result<FieldData, ValueError> {
        match (value, self.kind) {
            (Value::Vector(v), FieldKind::List) => number_list(&v),
            (Value::Vector(v), FieldKind::Vector(n)) if u32::try_from(v.dimension()) != Ok(n) => {
                Err(ValueError::Dimension)
            }
            // Some columns let bytes through that are no text; a string field cannot carry them.
            (Value::Bytes(_), FieldKind::Text) => Err(ValueError::NotUtf8),
            (value, _) => field_data(value),
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_codec::event::RowKind;
    use tidegate_codec::key::{Handle, record_key};
    use tidegate_codec::meta::TableInfo;
    use tidegate_core::{Op, RawChange, RegionId, StartTs, TableId};
    use tidegate_mini::bridge::SourceSeq;
    use tidegate_proto::searchfabric::v1::{AtomicValue, atomic_value, field_data};

    use super::*;
    use crate::lineage::fixture::generation;

    /// `emoji` with the columns of the fixture's definition; its handle is `id`, or hidden.
    fn layout(id_is_handle: bool) -> Arc<TableLayout> {
        let column = |id: i64, name: &str, field_type: &str| {
            format!(r#"{{"id":{id},"name":"{name}","offset":{},"type":{field_type},"state":5}}"#, id - 1)
        };
        let columns = [
            column(1, "id", r#"{"Tp":8,"Flag":35,"Flen":20,"Charset":"binary"}"#),
            column(2, "label", r#"{"Tp":15,"Flag":0,"Flen":99,"Charset":"utf8mb4","Collate":"utf8mb4_bin"}"#),
            column(3, "n", r#"{"Tp":8,"Flag":0,"Flen":20,"Charset":"binary"}"#),
            column(4, "v", r#"{"Tp":225,"Flag":0,"Flen":2,"Charset":"binary"}"#),
        ];
        let table = format!(r#"{{"id":7,"pk_is_handle":{id_is_handle},"cols":[{}]}}"#, columns.join(","));
        Arc::new(TableLayout::new(Arc::new(TableInfo::parse(table.as_bytes()).expect("a table"))))
    }

    /// A row of format v2 with these columns; every other one is NULL.
    fn value(set: &[(u8, &[u8])]) -> Bytes {
        let null: Vec<u8> = (1..=4).filter(|id| set.iter().all(|(s, _)| s != id)).collect();
        let mut out =
            vec![128, 0, u8::try_from(set.len()).expect("few"), 0, u8::try_from(null.len()).expect("few"), 0];
        out.extend(set.iter().map(|(id, _)| *id).chain(null));
        let mut end = 0;
        for (_, bytes) in set {
            end += bytes.len();
            out.extend(u16::try_from(end).expect("short").to_le_bytes());
        }
        out.extend(set.iter().flat_map(|(_, bytes)| bytes.to_vec()));
        out.into()
    }

    fn change(
        layout: &Arc<TableLayout>,
        handle: i64,
        commit_ts: u64,
        old: Option<Bytes>,
        new: Option<Bytes>,
    ) -> SealedRow<OwnedRow> {
        let kind = match (&old, &new) {
            (None, _) => RowKind::Insert,
            (_, None) => RowKind::Delete,
            _ => RowKind::Update,
        };
        let raw = RawChange {
            op: if new.is_some() { Op::Put } else { Op::Delete },
            key: record_key(None, TableId(7), &Handle::Int(handle)).into(),
            value: new.unwrap_or_default(),
            old_value: old.unwrap_or_default(),
            start_ts: StartTs::new(commit_ts - 1),
            commit_ts: CommitTs::new(commit_ts),
            region_id: RegionId(1),
        };
        let row = OwnedRow { table_id: TableId(7), kind, raw, layout: Arc::clone(layout) };
        SealedRow { seq: SourceSeq::FIRST, commit_ts: CommitTs::new(commit_ts), row }
    }

    fn transform(rows: &[SealedRow<OwnedRow>]) -> Vec<(RowMutationKind, u64, u64)> {
        let mutations = Transformer::default().transform(rows, &generation(2, 10)).expect("sound rows");
        mutations.iter().map(|m| (m.kind(), doc_id_of(m).expect("an id"), m.commit_ts)).collect()
    }

    #[test]
    fn an_upsert_carries_the_whole_row_and_passes_the_contract() {
        let layout = layout(true);
        let label = "猫".as_bytes();
        let vector = [&2u32.to_le_bytes()[..], &1f32.to_le_bytes(), &0.5f32.to_le_bytes()].concat();
        let rows = [change(&layout, -1, 20, None, Some(value(&[(2, label), (4, &vector)])))];
        let generation = generation(2, 10);
        let mutations = Transformer::default().transform(&rows, &generation).expect("a sound row");
        let [mutation] = mutations.as_slice() else { panic!("one mutation: {mutations:?}") };
        generation.schema.check_row(mutation, 2).expect("a row that the contract admits");
        // The handle -1 is the unsigned id 2^64 - 1.
        assert_eq!(doc_id_of(mutation), Some(u64::MAX));
        let atomic = |name: &str| match mutation.fields.get(name).and_then(|f| f.value.clone()) {
            Some(field_data::Value::AtomicValue(AtomicValue { value })) => value,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(atomic("label"), Some(atomic_value::Value::StringValue("猫".to_owned())));
        assert!(matches!(atomic("n"), Some(atomic_value::Value::NullValue(_))), "null is there, not missing");
    }

    #[test]
    fn inserts_and_updates_are_upserts_and_deletes_are_deletes() {
        let layout = layout(true);
        let (a, b) = (value(&[(3, &[1])]), value(&[(3, &[2])]));
        let rows = [
            change(&layout, 1, 20, None, Some(a.clone())),
            change(&layout, 1, 21, Some(a), Some(b.clone())),
            change(&layout, 1, 22, Some(b), None),
        ];
        use RowMutationKind::{Delete, Upsert};
        assert_eq!(transform(&rows), [(Upsert, 1, 20), (Upsert, 1, 21), (Delete, 1, 22)]);
    }

    #[test]
    fn an_update_of_the_document_id_deletes_the_old_document() {
        let layout = layout(false);
        let rows = [change(&layout, 1, 20, Some(value(&[(1, &[5])])), Some(value(&[(1, &[6])])))];
        assert_eq!(transform(&rows), [(RowMutationKind::Delete, 5, 20), (RowMutationKind::Upsert, 6, 20)]);
    }

    #[test]
    fn rows_that_swap_their_ids_in_one_transaction_are_two_upserts() {
        let layout = layout(false);
        let id = |n: u8| value(&[(1, &[n])]);
        let swap = |at| {
            [
                change(&layout, 1, at, Some(id(5)), Some(id(6))),
                change(&layout, 2, at, Some(id(6)), Some(id(5))),
            ]
        };
        assert_eq!(
            transform(&swap(20)),
            [(RowMutationKind::Upsert, 6, 20), (RowMutationKind::Upsert, 5, 20)]
        );
        let mut apart = swap(20).to_vec();
        apart.truncate(1);
        apart.extend(swap(21).into_iter().skip(1));
        use RowMutationKind::{Delete, Upsert};
        assert_eq!(transform(&apart), [(Delete, 5, 20), (Upsert, 6, 20), (Delete, 6, 21), (Upsert, 5, 21)]);
    }

    #[test]
    fn what_has_no_exact_form_is_refused_with_its_place_and_without_its_value() {
        let layout = layout(true);
        let check = |new: Bytes, part: &str| {
            let rows = [change(&layout, 1, 20, None, Some(new))];
            let error = Transformer::default().transform(&rows, &generation(2, 10)).expect_err(part);
            let text = error.to_string();
            assert!(text.contains(part) && text.contains("20"), "{text}");
        };
        check(value(&[(2, &[0xFF, 0xFE])]), "demo.emoji.label");
        let three = [&3u32.to_le_bytes()[..], &[0; 12]].concat();
        check(value(&[(4, &three)]), "another dimension");
        let nan = [&2u32.to_le_bytes()[..], &f32::NAN.to_le_bytes(), &[0; 4]].concat();
        check(value(&[(4, &nan)]), "not finite");
    }

    #[test]
    fn a_row_of_another_table_version_is_refused() {
        let table = r#"{"id":7,"pk_is_handle":true,"cols":[{"id":1,"name":"id","offset":0,
            "type":{"Tp":8,"Flag":35,"Flen":20,"Charset":"binary"},"state":5}]}"#;
        let info = Arc::new(TableInfo::parse(table.as_bytes()).expect("a table"));
        let rows = [change(&Arc::new(TableLayout::new(info)), 1, 20, None, Some(value(&[])))];
        let error = Transformer::default().transform(&rows, &generation(2, 10)).expect_err("no label");
        assert!(matches!(error, AdapterError::SchemaMismatch { field, .. } if field == "label"));
    }
}
