//! Column types as SQL text.

use std::fmt::Write;

use super::{ColumnFlags, FieldType, SqlType};

impl FieldType {
    /// The type as SHOW CREATE TABLE writes it, such as `decimal(4,1)`, `bigint unsigned` or
    /// `enum('a','b')`; without character set, collation and NULL.
    pub fn sql_text(&self) -> String {
        let mut text = self.name().to_owned();
        self.write_size(&mut text);
        if self.unsigned() && self.tp != SqlType::Bit && self.tp != SqlType::Year {
            text.push_str(" unsigned");
        }
        if self.flags.has(ColumnFlags::ZEROFILL) && self.tp != SqlType::Year {
            text.push_str(" zerofill");
        }
        text
    }

    fn name(&self) -> &'static str {
        let text = |text, binary| if self.is_binary() { binary } else { text };
        match self.tp {
            SqlType::TinyInt => "tinyint",
            SqlType::SmallInt => "smallint",
            SqlType::MediumInt => "mediumint",
            SqlType::Int => "int",
            SqlType::BigInt => "bigint",
            SqlType::Float => "float",
            SqlType::Double => "double",
            SqlType::Decimal => "decimal",
            SqlType::Bit => "bit",
            SqlType::Date | SqlType::NewDate => "date",
            SqlType::DateTime => "datetime",
            SqlType::Timestamp => "timestamp",
            SqlType::Time => "time",
            SqlType::Year => "year",
            SqlType::Char => text("char", "binary"),
            SqlType::VarChar | SqlType::VarString => text("varchar", "varbinary"),
            SqlType::TinyBlob => text("tinytext", "tinyblob"),
            SqlType::Blob => text("text", "blob"),
            SqlType::MediumBlob => text("mediumtext", "mediumblob"),
            SqlType::LongBlob => text("longtext", "longblob"),
            SqlType::Enum => "enum",
            SqlType::Set => "set",
            SqlType::Json => "json",
            SqlType::Vector => "vector",
            SqlType::Geometry => "geometry",
            SqlType::Null => "null",
            SqlType::Unspecified | SqlType::Other(_) => "unspecified",
        }
    }

    fn write_size(&self, text: &mut String) {
        let flen = Some(self.flen).filter(|flen| *flen >= 0);
        let written = match self.tp {
            // A display width matters only for BOOL and where zeros are filled up to it.
            tp if tp.is_integer() => {
                let shown = self.flen == 1 && tp == SqlType::TinyInt || self.flags.has(ColumnFlags::ZEROFILL);
                flen.filter(|_| shown).map(|flen| write!(text, "({flen})"))
            }
            SqlType::Float | SqlType::Double | SqlType::Decimal => {
                flen.filter(|_| self.decimal >= 0).map(|flen| write!(text, "({flen},{})", self.decimal))
            }
            SqlType::DateTime | SqlType::Timestamp | SqlType::Time => {
                (self.decimal > 0).then(|| write!(text, "({})", self.decimal))
            }
            SqlType::Year | SqlType::Bit | SqlType::Vector => flen.map(|flen| write!(text, "({flen})")),
            tp if tp.is_char() => flen.map(|flen| write!(text, "({flen})")),
            SqlType::Enum | SqlType::Set => Some(write!(text, "({})", self.member_list())),
            _ => None,
        };
        written.unwrap_or(Ok(())).expect("writing to a string cannot fail");
    }

    fn member_list(&self) -> String {
        let quoted =
            self.elems.iter().map(|elem| format!("'{}'", elem.replace('\\', "\\\\").replace('\'', "''")));
        quoted.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types and texts from the tables of `reference/tidb-schema-and-ddl.md` §1.12, example 4.
    #[test]
    fn types_read_as_show_create_table_writes_them() {
        let cases = [
            (r#"{"Tp":1,"Flen":4}"#, "tinyint"),
            (r#"{"Tp":1,"Flen":1}"#, "tinyint(1)"),
            (r#"{"Tp":8,"Flag":4131,"Flen":20}"#, "bigint unsigned"),
            (r#"{"Tp":3,"Flag":96,"Flen":5}"#, "int(5) unsigned zerofill"),
            (r#"{"Tp":4,"Flen":12,"Decimal":-1}"#, "float"),
            (r#"{"Tp":4,"Flen":7,"Decimal":3}"#, "float(7,3)"),
            (r#"{"Tp":246,"Flen":12,"Decimal":3}"#, "decimal(12,3)"),
            (r#"{"Tp":254,"Flen":5,"Charset":"utf8mb4"}"#, "char(5)"),
            (r#"{"Tp":15,"Flag":128,"Flen":7,"Charset":"binary"}"#, "varbinary(7)"),
            (r#"{"Tp":252,"Flen":65535,"Charset":"utf8mb4"}"#, "text"),
            (r#"{"Tp":252,"Flen":65535,"Charset":"binary"}"#, "blob"),
            (r#"{"Tp":12,"Flag":128,"Flen":23,"Decimal":3}"#, "datetime(3)"),
            (r#"{"Tp":7,"Flag":128,"Flen":19,"Decimal":0}"#, "timestamp"),
            (r#"{"Tp":13,"Flag":96,"Flen":4}"#, "year(4)"),
            (r#"{"Tp":16,"Flag":32,"Flen":9}"#, "bit(9)"),
            (r#"{"Tp":247,"Elems":["a","it's","\\"]}"#, r"enum('a','it''s','\\')"),
            (r#"{"Tp":225,"Flag":128,"Flen":3}"#, "vector(3)"),
            (r#"{"Tp":225,"Flag":128,"Flen":-1}"#, "vector"),
            (r#"{"Tp":245,"Flag":128,"Flen":4294967295}"#, "json"),
        ];
        for (json, text) in cases {
            let field: FieldType = serde_json::from_str(json).expect("a type");
            assert_eq!(field.sql_text(), text, "{json}");
        }
    }
}
