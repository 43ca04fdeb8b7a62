//! Builds the two helpers that podling carries inside itself.
//!
//! `podling-logger` and `podling-pause` must run where nothing of the host's libraries can be seen (a
//! pause container's root file system is empty), so they are linked statically whatever the rest of the
//! build does. They are single files that use only `std`, so one call of rustc each is enough.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["podling-logger", "podling-pause"] {
        let source = format!("src/bin/{name}.rs");
        println!("cargo::rerun-if-changed={source}");
        build(name, &source);
    }
}

fn build(name: &str, source: &str) {
    let var = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"));
    let out = PathBuf::from(var("OUT_DIR")).join(name);
    let mut rustc = Command::new(var("RUSTC"));
    rustc
        .args(["--edition=2024", "--crate-type=bin", "-Copt-level=s", "-Cpanic=abort", "-Cstrip=symbols"])
        .args(["-Ctarget-feature=+crt-static", "-Ccodegen-units=1", "-Clto=fat"])
        .arg(format!("--crate-name={}", name.replace('-', "_")))
        .arg(format!("--target={}", var("TARGET")))
        .arg("-o")
        .arg(&out)
        .arg(source);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let status = rustc.status().unwrap_or_else(|e| panic!("cannot run rustc for {name}: {e}"));
    assert!(status.success(), "rustc failed on {source}");
}
