//! The direction of dependencies: `base ← source ← search/sink ← control ← surface`, and `lab` for tests, the
//! demo and the playground command only.

use super::{File, Finding};

/// Folders under `crates/`, lowest first. Folders of equal rank know nothing of each other.
const RANKS: &[(&str, u8)] =
    &[("base", 0), ("source", 1), ("search", 2), ("sink", 2), ("control", 3), ("surface", 4)];

/// Who may import a neighbour of its own layer: the few that wire stages together, and the clients and models
/// that several stages stand on.
const NEIGHBOURS: &[(&str, &[&str])] = &[
    ("tidegate-puller", &["tidegate-pd"]),
    ("tidegate-mini", &["tidegate-pd", "tidegate-puller", "tidegate-schema", "tidegate-decoder"]),
    ("tidegate-adapter", &["tidegate-contract"]),
    ("tidegate-fabric", &["tidegate-contract"]),
    ("tidegate", &["tidegate-api"]),
];

/// The binary shows the playground and the demo, so it alone builds with `lab`.
const MAY_BUILD_WITH_LAB: &[&str] = &["tidegate"];

struct Crate<'a> {
    file: &'a File,
    folder: &'a str,
    name: String,
    dependencies: Vec<String>,
}

/// Every normal dependency on another crate of ours points down, or is listed in [`NEIGHBOURS`].
pub(super) fn dependency_direction(files: &[File]) -> Vec<Finding> {
    let crates: Vec<Crate<'_>> = files.iter().filter_map(parse).collect();
    let folder_of = |name: &str| crates.iter().find(|other| other.name == name).map(|other| other.folder);
    let broken = |this: &Crate<'_>| -> Vec<Finding> {
        let bad = this.dependencies.iter().filter_map(|dependency| {
            let folder = folder_of(dependency)?;
            (!allowed(&this.name, this.folder, dependency, folder)).then(|| {
                this.file.finding(0, format!("{} must not depend on {dependency} ({folder})", this.folder))
            })
        });
        bad.collect()
    };
    crates.iter().flat_map(broken).collect()
}

fn allowed(name: &str, folder: &str, dependency: &str, target: &str) -> bool {
    if target == "lab" {
        return folder == "lab" || MAY_BUILD_WITH_LAB.contains(&name);
    }
    if target == "base" {
        return true;
    }
    let listed = NEIGHBOURS.iter().any(|(who, whom)| *who == name && whom.contains(&dependency));
    match (rank(folder), rank(target)) {
        (Some(own), Some(other)) => other < own || listed,
        _ => false,
    }
}

fn rank(folder: &str) -> Option<u8> {
    RANKS.iter().find(|(name, _)| *name == folder).map(|(_, rank)| *rank)
}

fn parse(file: &File) -> Option<Crate<'_>> {
    let folder = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?.split('/').next()?;
    let manifest: toml::Table = file.text().parse().ok()?;
    let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    let dependencies = dependencies.map(|table| table.keys().cloned().collect()).unwrap_or_default();
    Some(Crate { file, folder, name, dependencies })
}

#[cfg(test)]
mod tests {
    use super::super::{file, found};
    use super::*;

    fn manifest(path: &str, name: &str, rest: &str) -> File {
        file(&format!("crates/{path}/Cargo.toml"), &format!("[package]\nname = \"{name}\"\n{rest}"))
    }

    #[test]
    fn a_lower_layer_must_not_import_a_higher_one() {
        let files = [
            manifest("base/codec", "tidegate-codec", "[dependencies]\ntidegate-pd.workspace = true\n"),
            manifest("source/pd", "tidegate-pd", "[dependencies]\ntidegate-codec.workspace = true\n"),
        ];
        let expected = ["crates/base/codec/Cargo.toml: base must not depend on tidegate-pd (source)"];
        assert_eq!(found(dependency_direction, &files), expected);
    }

    #[test]
    fn stages_of_one_layer_must_not_import_each_other_unless_they_wire() {
        let files = [
            manifest("source/pd", "tidegate-pd", ""),
            manifest("source/schema", "tidegate-schema", "[dependencies]\ntidegate-pd.workspace = true\n"),
            manifest("source/mini", "tidegate-mini", "[dependencies]\ntidegate-pd.workspace = true\n"),
        ];
        let expected = ["crates/source/schema/Cargo.toml: source must not depend on tidegate-pd (source)"];
        assert_eq!(found(dependency_direction, &files), expected);
    }

    #[test]
    fn lab_is_for_tests_and_for_the_binary() {
        let lab = "[dependencies]\ntidegate-testkit.workspace = true\n";
        let files = [
            manifest("lab/testkit", "tidegate-testkit", ""),
            manifest("surface/cli", "tidegate", lab),
            manifest("search/fabric", "tidegate-fabric", lab),
            manifest("source/pd", "tidegate-pd", "[dev-dependencies]\ntidegate-testkit.workspace = true\n"),
        ];
        let expected = ["crates/search/fabric/Cargo.toml: search must not depend on tidegate-testkit (lab)"];
        assert_eq!(found(dependency_direction, &files), expected);
    }
}
