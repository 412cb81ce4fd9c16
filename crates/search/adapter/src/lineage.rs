//! The generations of one collection's schema, as the catalogue knows them.

use std::sync::Arc;

use tidegate_contract::{Breach, INITIAL_GENERATION, Schema, SfErrorCode};
use tidegate_core::{TableId, Ts};
use tidegate_proto::searchfabric::v1::{CollectionSchemaDefinition, SchemaFence, SchemaGeneration};

/// One generation, compiled.
#[derive(Clone, Debug)]
pub struct Generation {
    /// 1-based.
    pub version: u32,
    /// The catalogue's name for it.
    pub token: Arc<str>,
    /// The DDL that began it.
    pub ddl_ts: Ts,
    /// The whole definition.
    pub definition: Arc<CollectionSchemaDefinition>,
    /// The definition, compiled.
    pub schema: Arc<Schema>,
}

impl Generation {
    /// Compiles a generation as the catalogue sent it.
    ///
    /// # Errors
    /// The definition breaks a rule of the contract.
    pub fn new(sent: &SchemaGeneration) -> Result<Self, Breach> {
        let missing =
            || Breach::new(SfErrorCode::SfInternal, "definition", "is missing in the catalogue's answer");
        let definition = sent.definition.clone().ok_or_else(missing)?;
        Ok(Self {
            version: sent.schema_version,
            token: sent.schema_generation_token.as_str().into(),
            ddl_ts: Ts::new(sent.ddl_commit_ts),
            schema: Arc::new(Schema::new(&definition)?),
            definition: Arc::new(definition),
        })
    }

    /// The physical tables that feed it.
    pub fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        partition_ids(&self.definition)
    }

    /// The logical table whose rows this generation describes.
    pub fn source_table(&self) -> Option<TableId> {
        self.definition.replay_context.as_ref().map(|context| TableId(context.source_table_id))
    }
}

/// The physical tables that feed a collection: the numbers in the names of its source partitions.
pub(crate) fn partition_ids(definition: &CollectionSchemaDefinition) -> impl Iterator<Item = TableId> + '_ {
    let id = |name: &str| name.rsplit(':').next().and_then(|id| id.parse().ok()).map(TableId);
    definition.source_partitions.iter().filter_map(move |p| id(&p.source_partition))
}

/// All generations, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Lineage(Vec<Generation>);

impl Lineage {
    /// The lineage of a collection as the catalogue sent it.
    ///
    /// # Errors
    /// As [`Generation::new`].
    pub fn new(sent: &[SchemaGeneration]) -> Result<Self, Breach> {
        let mut generations = sent.iter().map(Generation::new).collect::<Result<Vec<_>, _>>()?;
        generations.sort_unstable_by_key(|generation| generation.ddl_ts);
        Ok(Self(generations))
    }

    /// The generation in force for a schema as of `ts`: the newest at or below it.
    pub fn at(&self, ts: Ts) -> Option<&Generation> {
        self.0.iter().rev().find(|generation| generation.ddl_ts <= ts)
    }

    /// The generation that a DDL at `ddl_ts` starts from, also when that DDL is already in the lineage.
    pub fn before(&self, ddl_ts: Ts) -> Option<&Generation> {
        self.0.iter().rev().find(|generation| generation.ddl_ts < ddl_ts)
    }

    /// The generations below `ts`, oldest first.
    pub fn until(&self, ts: Ts) -> impl Iterator<Item = &Generation> {
        self.0.iter().take_while(move |generation| generation.ddl_ts < ts)
    }

    /// Up to where the lineage itself proves that `partition` is durable at the gateway: nothing of it
    /// existed before the DDL that brought it in, and no later DDL took effect before everything of it up to
    /// there was acknowledged.
    pub fn proven(&self, partition: &str) -> Ts {
        let lists =
            |g: &Generation| g.definition.source_partitions.iter().any(|p| p.source_partition == partition);
        let brought_in = self.0.iter().find(|g| lists(g)).map(|g| g.ddl_ts);
        let followed = self.0.windows(2).filter_map(|pair| match pair {
            [before, after] if lists(before) => Some(after.ddl_ts),
            _ => None,
        });
        brought_in.into_iter().chain(followed).max().unwrap_or(Ts::ZERO)
    }

    /// Adds a generation, or replaces the one of the same DDL.
    pub fn insert(&mut self, generation: Generation) {
        self.0.retain(|known| known.ddl_ts != generation.ddl_ts);
        let at = self.0.partition_point(|known| known.ddl_ts < generation.ddl_ts);
        self.0.insert(at, generation);
    }

    /// The fence of a change at `ddl_ts` and the version it makes. A replayed DDL gives the same
    /// (`spec/mini-cdc.md` §5.5 rule 5).
    pub fn fence(&self, ddl_ts: Ts) -> (SchemaFence, u32) {
        let (version, token) =
            self.before(ddl_ts).map_or((0, INITIAL_GENERATION), |g| (g.version, &*g.token));
        let fence = SchemaFence {
            expected_prev_schema_version: version,
            schema_generation_token: token.to_owned(),
            enforce_monotonic_apply: true,
        };
        (fence, version.saturating_add(1))
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    use tidegate_proto::searchfabric::v1::{
        CollectionSchemaDefinition, CollectionTruthMode, DocIdMapping, FieldSchema, ReplayContext,
        ScalarFieldType, SourcePartition, UndeclaredFieldPolicy, VectorElement, VectorMetric, VectorTypeSpec,
        field_schema::Type,
    };

    use super::*;

    fn field(id: i64, name: &str, r#type: Type) -> FieldSchema {
        FieldSchema {
            name: name.to_owned(),
            field_id: id,
            r#type: Some(r#type),
            nullable: id != 1,
            ..FieldSchema::default()
        }
    }

    /// `id` (identity), `label`, `n`, `v` (2 dimensions), from `table:7`.
    pub(crate) fn definition() -> CollectionSchemaDefinition {
        let scalar = |t: ScalarFieldType| Type::Scalar(t.into());
        let vector = VectorTypeSpec {
            dimensions: 2,
            element: VectorElement::F32.into(),
            metric: VectorMetric::Cosine.into(),
        };
        CollectionSchemaDefinition {
            name: "demo.emoji".to_owned(),
            truth_mode: CollectionTruthMode::External.into(),
            doc_id_mapping: Some(DocIdMapping {
                source_field: "id".to_owned(),
                r#type: ScalarFieldType::Uint64.into(),
            }),
            fields: vec![
                field(1, "id", scalar(ScalarFieldType::Uint64)),
                field(2, "label", scalar(ScalarFieldType::String)),
                field(3, "n", scalar(ScalarFieldType::Int64)),
                field(4, "v", Type::Vector(vector)),
            ],
            undeclared_field_policy: UndeclaredFieldPolicy::Reject.into(),
            source_partitions: vec![SourcePartition { source_partition: "table:7".to_owned(), start_ts: 10 }],
            replay_context: Some(ReplayContext { source_table_id: 7, ..ReplayContext::default() }),
            ..CollectionSchemaDefinition::default()
        }
    }

    /// Generation `version` of [`definition`], begun at `ddl_ts`, with the token `g<version>`.
    pub(crate) fn generation(version: u32, ddl_ts: u64) -> Generation {
        let sent = SchemaGeneration {
            schema_version: version,
            schema_generation_token: format!("g{version}"),
            ddl_commit_ts: ddl_ts,
            definition: Some(definition()),
            ..SchemaGeneration::default()
        };
        Generation::new(&sent).expect("a valid definition")
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::generation;
    use super::*;

    fn lineage() -> Lineage {
        let mut lineage = Lineage::default();
        for (version, ddl_ts) in [(2, 200), (1, 100), (3, 300)] {
            lineage.insert(generation(version, ddl_ts));
        }
        lineage
    }

    #[test]
    fn the_generation_in_force_is_the_newest_at_or_below() {
        let lineage = lineage();
        let at = |ts| lineage.at(Ts::new(ts)).map(|g| g.version);
        assert_eq!([at(99), at(100), at(199), at(200), at(999)], [None, Some(1), Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn a_replayed_ddl_is_fenced_by_the_state_before_it() {
        let lineage = lineage();
        let fence = |ts| {
            let (fence, version) = lineage.fence(Ts::new(ts));
            (fence.expected_prev_schema_version, fence.schema_generation_token, version)
        };
        assert_eq!(fence(100), (0, "__initial__".to_owned(), 1));
        assert_eq!(fence(200), (1, "g1".to_owned(), 2), "although it is in the lineage already");
        assert_eq!(fence(400), (3, "g3".to_owned(), 4));
    }

    #[test]
    fn a_later_generation_proves_that_everything_before_it_arrived() {
        let mut lineage = lineage();
        assert_eq!(lineage.proven("table:7"), Ts::new(300));
        assert_eq!(lineage.proven("table:8"), Ts::ZERO);
        let mut without = generation(4, 400);
        let mut definition = (*without.definition).clone();
        definition.source_partitions.clear();
        without.definition = Arc::new(definition);
        lineage.insert(without);
        assert_eq!(
            lineage.proven("table:7"),
            Ts::new(400),
            "it passed the barrier of the ddl that retired it"
        );
    }
}
