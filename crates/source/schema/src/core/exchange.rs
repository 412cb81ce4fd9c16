//! EXCHANGE PARTITION: a partition and a normal table swap their ids
//! (`reference/tidb-schema-and-ddl.md` §4 and §9.5).

use std::sync::Arc;

use tidegate_codec::{
    ddl::{ExchangeArgs, JobArgs},
    event::{Influenced, NamedTableInfo, SchemaMove, TableName},
    row::TableLayout,
};

use super::{
    SchemaCore,
    apply::{Change, Outcome},
};
use crate::{SchemaError, statement};

impl SchemaCore {
    /// The job's own table is the normal one, its table info the partitioned one after the exchange: the
    /// normal table's id is a partition there. The partition's id becomes the normal table's.
    pub(super) fn exchange_partition(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let JobArgs::Exchange(args) = change.args()? else { return Err(change.incomplete("arguments")) };
        let normal_id = change.job.table_id;
        let normal = self.table_name(change, normal_id)?;
        let partitioned = self.table_name(change, args.partitioned_table_id)?;
        let partitioned_info = change.table_info()?;
        let Some(normal_info) = self.catalog.remove_table(normal_id).map(|table| table.info) else {
            return Err(change.unknown(format!("table {normal_id}")));
        };
        let mut outside = (*normal_info).clone();
        outside.id = args.partition_id;
        let outside = Arc::new(outside);

        let at = change.at.ts();
        let inside = Arc::new(TableLayout::new(partitioned_info.clone()));
        self.push_version(normal_id, at, at, partitioned.schema_id, &inside);
        self.install(at, at, normal.schema_id, outside);
        self.catalog.put_table(partitioned.schema_id, partitioned_info.clone());

        change.set_identity(&normal);
        set_influence(change, &args, &normal, &partitioned);
        change.event.query = statement::exchange_partition(&partitioned, &args, &normal);
        change.event.multiple_table_infos = vec![
            NamedTableInfo { name: partitioned.clone(), info: partitioned_info.clone() },
            NamedTableInfo { name: normal, info: normal_info },
        ];
        change.event.table_info = Some(partitioned_info);
        change.event.other = Some(partitioned);
        change.touched.extend([normal_id, args.partition_id]);
        Ok(Outcome::Event)
    }
}

fn set_influence(change: &mut Change<'_>, args: &ExchangeArgs, normal: &TableName, partitioned: &TableName) {
    change.event.blocked_tables = Influenced::with_trigger([normal.table_id, args.partition_id]);
    change.event.blocked_table_names = vec![normal.clone(), partitioned.clone()];
    let (outer, inner) = (normal.schema_id, partitioned.schema_id);
    if outer != inner {
        change.event.updated_schemas = vec![
            SchemaMove { table_id: args.partition_id, old: inner, new: outer },
            SchemaMove { table_id: normal.table_id, old: outer, new: inner },
        ];
    }
}
