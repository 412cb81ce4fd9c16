//! SHOW CREATE TABLE from metadata, in TiDB's form, to compare whole tables at once: columns, types,
//! defaults, keys, foreign keys, partitions and options.

use std::fmt::Write;

use tidegate_codec::meta::{
    ColumnFlags, ColumnInfo, FieldType, FkAction, FkInfo, IndexColumn, IndexInfo, PartitionInfo,
    PartitionType, SchemaState, SqlType, TableInfo,
};

/// The statement. What is no part of a table's metadata (allocators' next values) is left out.
pub(crate) fn show_create(table: &TableInfo) -> String {
    let mut lines: Vec<String> =
        table.public_columns().map(|(_, column)| column_line(table, column)).collect();
    if let Some(column) = table.pk_handle_column() {
        let name = quoted(table.columns[column].name.as_str());
        lines.push(format!("  PRIMARY KEY ({name}) /*T![clustered_index] CLUSTERED */"));
    }
    let public = table.indexes.iter().filter(|index| index.is_public());
    lines.extend(public.map(|index| index_line(table, index)));
    lines.extend(
        table.foreign_keys.iter().filter(|key| key.state == SchemaState::Public).map(foreign_key_line),
    );
    let mut text = format!("CREATE TABLE {} (\n{}\n)", quoted(table.name.as_str()), lines.join(",\n"));
    write!(text, " ENGINE=InnoDB DEFAULT CHARSET={} COLLATE={}", table.charset, table.collate).unwrap();
    write_options(&mut text, table);
    if let Some(partition) = table.partition.as_ref().filter(|partition| partition.enable) {
        write!(text, "\n{}", partition_clause(partition)).unwrap();
    }
    text
}

/// The recorded statement without the allocators' next values.
pub(crate) fn without_allocators(create: &str) -> String {
    let without_base = without(create, " /*T![auto_rand_base] AUTO_RANDOM_BASE=", " */");
    without(&without_base, " AUTO_INCREMENT=", "")
}

/// `text` without the first `start`, the number after it, and `end`.
fn without(text: &str, start: &str, end: &str) -> String {
    let Some((before, rest)) = text.split_once(start) else { return text.to_owned() };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}{}", rest.strip_prefix(end).unwrap_or(rest))
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn string(text: &str) -> String {
    let mut quoted = String::from("'");
    for c in text.chars() {
        match c {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\0' => quoted.push_str("\\0"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            c => quoted.push(c),
        }
    }
    quoted + "'"
}

fn column_line(table: &TableInfo, column: &ColumnInfo) -> String {
    let field = &column.field_type;
    let mut line = format!("  {} {}", quoted(column.name.as_str()), field.sql_text());
    write_charset(&mut line, table, field);
    if column.is_generated() {
        let kind = if column.generated_stored { "STORED" } else { "VIRTUAL" };
        write!(line, " GENERATED ALWAYS AS ({}) {kind}", column.generated_expr_string).unwrap();
    }
    if field.flags.has(ColumnFlags::AUTO_INCREMENT) {
        line.push_str(" NOT NULL AUTO_INCREMENT");
    } else {
        if field.not_null() {
            line.push_str(" NOT NULL");
        }
        if !field.flags.has(ColumnFlags::NO_DEFAULT) && !column.is_generated() {
            line.push_str(&default_clause(column));
        }
    }
    if field.flags.has(ColumnFlags::ON_UPDATE_NOW) {
        write!(line, " ON UPDATE CURRENT_TIMESTAMP{}", precision(field)).unwrap();
    }
    if table.auto_random_bits > 0 && field.flags.has(ColumnFlags::PRIMARY_KEY) {
        let range = match table.auto_random_range_bits {
            0 | 64 => String::new(),
            bits => format!(", {bits}"),
        };
        write!(line, " /*T![auto_rand] AUTO_RANDOM({}{range}) */", table.auto_random_bits).unwrap();
    }
    if !column.comment.is_empty() {
        write!(line, " COMMENT {}", string(&column.comment)).unwrap();
    }
    line
}

/// The collation a character set has unless another is named; `reference/tidb-schema-and-ddl.md` §1.8.
fn default_collation(charset: &str) -> &str {
    match charset {
        "utf8mb4" => "utf8mb4_bin",
        "utf8" => "utf8_bin",
        "latin1" => "latin1_bin",
        "ascii" => "ascii_bin",
        "gbk" => "gbk_chinese_ci",
        "gb18030" => "gb18030_chinese_ci",
        other => other,
    }
}

fn write_charset(line: &mut String, table: &TableInfo, field: &FieldType) {
    let textual =
        field.tp.is_char() || field.tp.is_blob() || matches!(field.tp, SqlType::Enum | SqlType::Set);
    if !textual || field.is_binary() {
        return;
    }
    if field.charset != table.charset {
        write!(line, " CHARACTER SET {}", field.charset).unwrap();
    }
    if field.collate != table.collate || field.collate != default_collation(&field.charset) {
        write!(line, " COLLATE {}", field.collate).unwrap();
    }
}

fn precision(field: &FieldType) -> String {
    if field.decimal > 0 { format!("({})", field.decimal) } else { String::new() }
}

fn default_clause(column: &ColumnInfo) -> String {
    let field = &column.field_type;
    let Some(default) = &column.default else {
        let null = if field.tp == SqlType::Timestamp { " NULL DEFAULT NULL" } else { " DEFAULT NULL" };
        return if field.not_null() { String::new() } else { null.to_owned() };
    };
    let text = default.as_text();
    match text.as_ref() {
        "CURRENT_TIMESTAMP" => format!(" DEFAULT CURRENT_TIMESTAMP{}", precision(field)),
        "CURRENT_DATE" => " DEFAULT CURRENT_DATE".to_owned(),
        text if column.default_is_expr => format!(" DEFAULT {text}"),
        _ if field.tp == SqlType::Bit => {
            let bits =
                column.default_bit.iter().flatten().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
            format!(" DEFAULT b'{bits:b}'")
        }
        text => format!(" DEFAULT {}", string(text)),
    }
}

fn index_line(table: &TableInfo, index: &IndexInfo) -> String {
    let name = quoted(index.name.as_str());
    let mut line = match (index.is_primary, index.is_unique) {
        (true, _) => "  PRIMARY KEY ".to_owned(),
        (false, true) => format!("  UNIQUE KEY {name} "),
        (false, false) => format!("  KEY {name} "),
    };
    let parts: Vec<String> = index.columns.iter().map(|part| index_part(table, part)).collect();
    write!(line, "({})", parts.join(",")).unwrap();
    if index.is_invisible {
        line.push_str(" /*!80000 INVISIBLE */");
    }
    if !index.comment.is_empty() {
        write!(line, " COMMENT {}", string(&index.comment)).unwrap();
    }
    if index.is_primary {
        let kind = if table.is_common_handle { "CLUSTERED" } else { "NONCLUSTERED" };
        write!(line, " /*T![clustered_index] {kind} */").unwrap();
    }
    if index.is_global {
        line.push_str(" /*T![global_index] GLOBAL */");
    }
    line
}

fn index_part(table: &TableInfo, part: &IndexColumn) -> String {
    let column = &table.columns[part.offset];
    if column.hidden {
        return format!("({})", column.generated_expr_string);
    }
    let prefix = if part.is_prefix() { format!("({})", part.length) } else { String::new() };
    format!("{}{prefix}", quoted(column.name.as_str()))
}

fn foreign_key_line(key: &FkInfo) -> String {
    let list = |names: &[tidegate_codec::meta::CiName]| {
        names.iter().map(|name| quoted(name.as_str())).collect::<Vec<_>>().join(",")
    };
    let mut line = format!(
        "  CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({})",
        quoted(key.name.as_str()),
        list(&key.columns),
        quoted(key.ref_table.as_str()),
        list(&key.ref_cols),
    );
    for (event, action) in [("DELETE", key.on_delete), ("UPDATE", key.on_update)] {
        let action = match action {
            FkAction::None | FkAction::Other(_) => continue,
            FkAction::Restrict => "RESTRICT",
            FkAction::Cascade => "CASCADE",
            FkAction::SetNull => "SET NULL",
            FkAction::NoAction => "NO ACTION",
            FkAction::SetDefault => "SET DEFAULT",
        };
        write!(line, " ON {event} {action}").unwrap();
    }
    line
}

fn write_options(text: &mut String, table: &TableInfo) {
    if table.auto_id_cache > 0 {
        write!(text, " /*T![auto_id_cache] AUTO_ID_CACHE={} */", table.auto_id_cache).unwrap();
    }
    if table.shard_row_id_bits > 0 {
        let split = match table.pre_split_regions {
            0 => String::new(),
            regions => format!(" PRE_SPLIT_REGIONS={regions}"),
        };
        write!(text, " /*T! SHARD_ROW_ID_BITS={}{split} */", table.shard_row_id_bits).unwrap();
    }
    if !table.comment.is_empty() {
        write!(text, " COMMENT={}", string(&table.comment)).unwrap();
    }
}

fn partition_clause(partition: &PartitionInfo) -> String {
    let columns: Vec<String> = partition.columns.iter().map(|name| quoted(name.as_str())).collect();
    let columns = columns.join(",");
    let by = match (partition.kind, columns.is_empty()) {
        (PartitionType::Hash, _) => format!("HASH ({})", partition.expr),
        (PartitionType::Key, _) => format!("KEY ({columns})"),
        (PartitionType::Range, true) => format!("RANGE ({})", partition.expr),
        (PartitionType::Range, false) => format!("RANGE COLUMNS({columns})"),
        (PartitionType::List, true) => format!("LIST ({})", partition.expr),
        (PartitionType::List, false) => format!("LIST COLUMNS({columns})"),
        (other, _) => format!("{other:?}"),
    };
    if matches!(partition.kind, PartitionType::Hash | PartitionType::Key) {
        return format!("PARTITION BY {by} PARTITIONS {}", partition.num);
    }
    let one = |definition: &tidegate_codec::meta::PartitionDefinition| {
        let name = quoted(definition.name.as_str());
        if definition.less_than.is_empty() {
            let tuples = definition.in_values.iter().map(|tuple| match tuple.as_slice() {
                [one] => one.clone(),
                many => format!("({})", many.join(",")),
            });
            format!("PARTITION {name} VALUES IN ({})", tuples.collect::<Vec<_>>().join(","))
        } else {
            format!("PARTITION {name} VALUES LESS THAN ({})", definition.less_than.join(","))
        }
    };
    let definitions: Vec<String> = partition.definitions.iter().map(one).collect();
    format!("PARTITION BY {by}\n({})", definitions.join(",\n "))
}
