//! Compiles every `.proto` file under the workspace's `proto/` with protox; no protoc binary is needed.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../proto");
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    println!("cargo::rerun-if-changed={}", root.display());

    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_source_info(true).include_imports(true).open_files(&files)?;
    tonic_prost_build::configure()
        // Row values are shared slices of the message they came in, not copies.
        .bytes(".")
        // Canonical encodings of the search contract need an order that does not depend on a hash seed.
        .btree_map(".searchfabric.v1")
        .include_file("packages.rs")
        .emit_rerun_if_changed(false)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// All `.proto` files below `dir`. Their folders are watched too, so that a new file is noticed.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|ext| ext == "proto") {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push(path);
        }
    }
    Ok(())
}
