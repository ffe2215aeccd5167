//! Release files for users without a compiler: an archive of static programs for each platform, inventories of all
//! components (SBOMs in CycloneDX format) of the programs and of each image, and checksums.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use cargo_metadata::{DependencyKind, Package, PackageId};
use serde_json::{Value, json};

use crate::Repository;

/// The platforms. Each comes with the cross-linker that is needed to build for it on another platform, and with the
/// Debian packages that contain this linker and a static C library.
const PLATFORMS: &[(&str, &str, &str)] = &[
    ("x86_64-unknown-linux-gnu", "x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross"),
    ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
];
/// The packages and their programs.
const PROGRAMS: &[(&str, &str)] =
    &[("faultline-cli", "faultline"), ("faultline-kubectl", "kubectl-faultline")];
/// The packages whose programs the images contain.
const IMAGES: &[&str] = &["faultline-node", "faultline-operator", "faultline-cli"];
/// Files in each archive in addition to the programs.
const DOCUMENTS: &[&str] = &["LICENSE", "README.md"];
const SUMS: &str = "SHA256SUMS";
/// The exit status if a platform was skipped, as in the steps of `.ci/run`.
const SKIPPED: u8 = 77;

/// Creates all release files in `dist` in the target directory. If this machine cannot build for another platform,
/// reports that platform and returns [`SKIPPED`]. Fails if the machine cannot build for its own platform.
pub(crate) fn run(repository: &Repository) -> Result<ExitCode, Box<dyn Error>> {
    let target: &Path = repository.metadata.target_directory.as_ref();
    let dist = target.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist)?;
    }
    fs::create_dir_all(&dist)?;
    let host = host()?;
    let version = version(repository)?;
    let (mut made, mut status) = (Vec::new(), ExitCode::SUCCESS);
    for &(platform, linker, packages) in PLATFORMS {
        match built(repository, target, platform, (platform != host).then_some((linker, packages))) {
            Ok(programs) => {
                let name = format!("faultline-{version}-{platform}");
                made.push(archive(repository, &dist, &name, &programs)?);
            }
            Err(why) if platform != host => {
                println!("SKIPPED {platform}: {why}");
                status = ExitCode::from(SKIPPED);
            }
            Err(why) => return Err(why),
        }
    }
    let programs: Vec<&str> = PROGRAMS.iter().map(|it| it.0).collect();
    let inventories = IMAGES.iter().map(|it| (*it, vec![*it])).chain([("faultline", programs)]);
    for (name, packages) in inventories {
        let inventory = format!("{name}-{version}.cdx.json");
        let content = inventory_of(repository, name, &packages)?;
        fs::write(dist.join(&inventory), serde_json::to_string_pretty(&content)? + "\n")?;
        made.push(inventory);
    }
    let sums = Command::new("sha256sum").args(&made).current_dir(&dist).output()?;
    if !sums.status.success() {
        return Err(String::from_utf8_lossy(&sums.stderr).into_owned().into());
    }
    fs::write(dist.join(SUMS), sums.stdout)?;
    for name in made.iter().map(String::as_str).chain([SUMS]) {
        let size = fs::metadata(dist.join(name))?.len() as f64 / 1e6;
        println!("{size:8.1} MB  {}", dist.join(name).display());
    }
    Ok(status)
}

/// Returns the platform of this machine.
fn host() -> Result<String, Box<dyn Error>> {
    let said = Command::new("rustc").arg("-vV").output()?;
    let said = String::from_utf8(said.stdout)?;
    let host = said.lines().find_map(|it| it.strip_prefix("host: "));
    Ok(host.ok_or("`rustc -vV` does not print its host platform")?.to_owned())
}

fn version(repository: &Repository) -> Result<String, Box<dyn Error>> {
    let packages = repository.metadata.workspace_packages();
    let program = packages
        .iter()
        .find(|it| it.name.as_str() == PROGRAMS[0].0)
        .ok_or("no package builds the program")?;
    Ok(program.version.to_string())
}

/// Builds the static programs for a platform.
fn built(
    repository: &Repository,
    target: &Path,
    platform: &str,
    linker: Option<(&str, &str)>,
) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    if let Some((linker, packages)) = linker {
        let there =
            Command::new(linker).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !there.is_ok_and(|it| it.success()) {
            return Err(format!(
                "the linker {linker} is not installed; on Debian: apt-get install {packages}"
            )
            .into());
        }
        let added = Command::new("rustup").args(["target", "add", platform]).output();
        match added {
            Ok(it) if it.status.success() => {}
            Ok(it) => return Err(last_line(&it.stderr).into()),
            Err(error) => {
                return Err(format!("its standard library cannot be fetched: rustup: {error}").into());
            }
        }
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--target", platform]).current_dir(&repository.root);
    cargo.args(PROGRAMS.iter().flat_map(|it| ["--package", it.0]));
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    if let Some((linker, _)) = linker {
        let key = platform.replace('-', "_");
        cargo
            .env(format!("CARGO_TARGET_{}_LINKER", key.to_uppercase()), linker)
            .env(format!("CC_{key}"), linker);
    }
    if !cargo.status()?.success() {
        return Err("the build failed".into());
    }
    let programs: Vec<PathBuf> =
        PROGRAMS.iter().map(|it| target.join(platform).join("release").join(it.1)).collect();
    for program in &programs {
        if !is_static(&fs::read(program)?) {
            return Err(format!("{} is not static: it needs a loader", program.display()).into());
        }
    }
    Ok(programs)
}

fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    said.lines().last().unwrap_or("its standard library cannot be fetched").to_owned()
}

/// Returns whether a 64-bit ELF program needs no loader, according to its program headers (`PT_INTERP` names one).
fn is_static(program: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let number = |offset: usize, size: usize| -> Option<u64> {
        let bytes = program.get(offset..offset + size)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    };
    let headers = || -> Option<Vec<u64>> {
        let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count).map(|it| number((first + it * size) as usize, 4)).collect()
    };
    program.starts_with(b"\x7fELF\x02\x01")
        && headers().is_some_and(|it| !it.is_empty() && !it.contains(&PT_INTERP.into()))
}

/// Packs the programs and the documents into an archive, inside a directory with the archive's name.
fn archive(
    repository: &Repository,
    dist: &Path,
    name: &str,
    programs: &[PathBuf],
) -> Result<String, Box<dyn Error>> {
    let directory = dist.join(name);
    fs::create_dir_all(&directory)?;
    for file in programs.iter().cloned().chain(DOCUMENTS.iter().map(|it| repository.root.join(it))) {
        let name = file.file_name().ok_or("a file has no name")?;
        fs::copy(&file, directory.join(name))?;
    }
    let archive = format!("{name}.tar.gz");
    // Identical files produce identical archives.
    let options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "-czf"];
    let packed = Command::new("tar")
        .args(options)
        .arg(&archive)
        .arg(name)
        .env("GZIP", "-n")
        .current_dir(dist)
        .status()?;
    if !packed.success() {
        return Err(format!("tar cannot create {archive}").into());
    }
    fs::remove_dir_all(directory)?;
    Ok(archive)
}

/// Returns an inventory in CycloneDX format: all crates that are compiled into the programs of these packages, or needed
/// to compile them.
fn inventory_of(repository: &Repository, name: &str, packages: &[&str]) -> Result<Value, Box<dyn Error>> {
    let resolve = repository.metadata.resolve.as_ref().ok_or("cargo has not resolved the dependencies")?;
    let package = |id: &PackageId| &repository.metadata[id];
    let mut open: Vec<&PackageId> = resolve
        .nodes
        .iter()
        .map(|it| &it.id)
        .filter(|id| packages.contains(&package(id).name.as_str()))
        .collect();
    let mut needed: BTreeSet<&PackageId> = BTreeSet::new();
    while let Some(id) = open.pop() {
        if needed.insert(id) {
            let node = resolve.nodes.iter().find(|it| it.id == *id).ok_or("a crate is not resolved")?;
            let dependencies = node
                .deps
                .iter()
                .filter(|it| it.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development));
            open.extend(dependencies.map(|it| &it.pkg));
        }
    }
    let components: Vec<Value> = needed.into_iter().map(|id| component(package(id))).collect();
    let version = version(repository)?;
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": name, "version": version } },
        "components": components,
    }))
}

fn component(package: &Package) -> Value {
    let (name, version) = (package.name.as_str(), package.version.to_string());
    let mut component = json!({
        "type": "library",
        "bom-ref": format!("{name}@{version}"),
        "name": name,
        "version": version,
        "purl": format!("pkg:cargo/{name}@{version}"),
    });
    if let Some(licence) = &package.license {
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inventory_lists_what_is_in_the_programs_and_nothing_else() {
        let metadata = cargo_metadata::MetadataCommand::new()
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .other_options(["--offline".into(), "--filter-platform=x86_64-unknown-linux-gnu".into()])
            .exec()
            .unwrap();
        let repository = Repository { root: metadata.workspace_root.clone().into(), metadata };
        let inventory =
            inventory_of(&repository, "faultline", &["faultline-cli", "faultline-kubectl"]).unwrap();
        assert_eq!(
            (&inventory["bomFormat"], &inventory["specVersion"]),
            (&"CycloneDX".into(), &"1.5".into())
        );
        assert_eq!(inventory["metadata"]["component"]["version"], env!("CARGO_PKG_VERSION"));
        let components = inventory["components"].as_array().unwrap();
        let names = names_in(&inventory);
        for program in
            ["faultline-cli", "faultline-kubectl", "faultline-protocols", "clap", "kube", "serde_derive"]
        {
            assert!(names.contains(program), "{program} is missing");
        }
        // Crates that no released program needs.
        for other in ["assert_cmd", "faultline-operator", "xtask"] {
            let is_known = repository.metadata.packages.iter().any(|it| it.name.as_str() == other);
            assert!(is_known && !names.contains(other), "{other} is in no program");
        }
        let references: BTreeSet<&str> =
            components.iter().map(|it| it["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(references.len(), components.len(), "each reference is unique");
        for component in components {
            let (name, version) =
                (component["name"].as_str().unwrap(), component["version"].as_str().unwrap());
            assert_eq!(component["purl"], format!("pkg:cargo/{name}@{version}"));
            assert!(component["licenses"][0]["expression"].is_string(), "{name} has no licence");
        }
        assert!(IMAGES.contains(&"faultline-cli"), "the image for campaigns contains this program");
        for image in IMAGES {
            let inventory = inventory_of(&repository, image, &[image]).unwrap();
            assert_eq!(inventory["metadata"]["component"]["name"], *image);
            let names = names_in(&inventory);
            let is_operator = *image == "faultline-operator";
            assert!(names.contains(image), "{image}");
            // Pods of campaigns use no network.
            assert_eq!(names.contains("rustls"), *image != "faultline-cli", "{image}");
            assert_eq!(
                [names.contains("kube"), names.contains("faultline-runtime")],
                [is_operator, !is_operator]
            );
        }
    }

    fn names_in(inventory: &Value) -> BTreeSet<&str> {
        let components = inventory["components"].as_array().unwrap();
        components.iter().map(|it| it["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn static_and_dynamic_programs_are_distinguished() {
        // This test is linked dynamically. Without its `PT_INTERP` header, it would look static.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&own));
        let mut without = own.clone();
        let first = u64::from_le_bytes(*own[32..].first_chunk().unwrap()) as usize;
        let (size, count) = (usize::from(own[54]), usize::from(own[56]));
        for header in (0..count).map(|it| first + it * size).filter(|&it| own[it] == 3) {
            without[header] = 4;
        }
        assert!(is_static(&without));
        assert!(!is_static(&own[..40]) && !is_static(b"#!/bin/sh\n") && !is_static(b""));
    }
}
