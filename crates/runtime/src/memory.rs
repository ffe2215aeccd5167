//! Memory of this program and of the machine, as reported by Linux.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use faultline_supervisor::MemoryBound;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// Mount point of the control groups (version 2).
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Returns the memory limit of this program: `bytes` or, by default, half of the [`available`] memory.
pub fn bound(bytes: Option<u64>) -> MemoryBound {
    // If the available memory is unknown, there is no limit.
    let half = || available().map_or(u64::MAX, |it| it / 2);
    MemoryBound { bytes: bytes.unwrap_or_else(half), used: || used().unwrap_or(0) }
}

/// Returns the memory that this program uses at present, in bytes: its resident memory, excluding pages that are backed
/// by files, such as the program's code. `None` if it is unknown.
pub fn used() -> Option<u64> {
    static COUNTS: OnceLock<Option<File>> = OnceLock::new();
    let counts = COUNTS.get_or_init(|| File::open("/proc/self/statm").ok()).as_ref()?;
    let mut text = [0; 128];
    let len = counts.read_at(&mut text, 0).ok()?;
    Some(own_pages(std::str::from_utf8(&text[..len]).ok()?)? * page_size()?)
}

/// Returns the memory that this program and all its descendants use at present, in bytes. `None` if it is
/// unknown.
pub fn used_by_all() -> Option<u64> {
    let (mut pages, mut processes) = (0, vec!["self".to_owned()]);
    while let Some(process) = processes.pop() {
        let dir = Path::new("/proc").join(process);
        // A process may have exited in the meantime.
        pages += fs::read_to_string(dir.join("statm")).ok().and_then(|it| own_pages(&it)).unwrap_or(0);
        for thread in fs::read_dir(dir.join("task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            processes.extend(children.split_whitespace().map(str::to_owned));
        }
    }
    Some(pages * page_size()?).filter(|it| *it > 0)
}

fn page_size() -> Option<u64> {
    static SIZE: OnceLock<Option<u64>> = OnceLock::new();
    *SIZE.get_or_init(|| page_size_of(&fs::read("/proc/self/auxv").ok()?))
}

/// Returns the maximum amount of memory that this program can use, in bytes: the memory of the machine or, if lower,
/// the smallest limit of the program's control groups (in a container, the container's memory limit) and of its address
/// space. `None` if it is unknown.
pub fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|it| total(&it));
    let limits = control_groups(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let limit = |group: PathBuf| fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok();
    let addresses = addresses_left().map(|left| left.saturating_add(used().unwrap_or(0)));
    machine.into_iter().chain(limits.into_iter().filter_map(limit)).chain(addresses).min()
}

/// Returns how much the address space of this program can still grow, in bytes; `None` if it is not limited.
pub fn addresses_left() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_AS).ok().filter(|it| it.0 != RLIM_INFINITY)?;
    let pages =
        fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(limit.saturating_sub(pages * page_size()?))
}

/// Returns the directories of the control group (version 2) named in `own`, and of the groups that contain
/// it. `own` is the content of `/proc/self/cgroup`.
pub fn control_groups(own: &str) -> Vec<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let root = Path::new(CONTROL_GROUPS);
    path.map_or_else(Vec::new, |path| {
        root.join(path).ancestors().take_while(|it| it.starts_with(root)).map(Path::to_owned).collect()
    })
}

/// Returns the number of resident pages that are not backed by a file, from the content of `/proc/self/statm`.
fn own_pages(statm: &str) -> Option<u64> {
    let mut numbers = statm.split_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(resident.saturating_sub(shared))
}

/// Returns the size of a page, in bytes, from the pairs of words in `/proc/self/auxv`.
fn page_size_of(auxv: &[u8]) -> Option<u64> {
    const AT_PAGESZ: usize = 6;
    let (words, _) = auxv.as_chunks::<{ size_of::<usize>() }>();
    let (pairs, _) = words.as_chunks::<2>();
    let pair = pairs.iter().find(|[kind, _]| usize::from_ne_bytes(*kind) == AT_PAGESZ)?;
    Some(usize::from_ne_bytes(pair[1]) as u64)
}

/// Returns the memory of the machine, in bytes, from the content of `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_parsed() {
        assert_eq!(own_pages("100 20 3 4 0 5 0\n"), Some(17));
        assert_eq!(own_pages(""), None);
        assert_eq!(total("MemTotal:    2048 kB\nMemAvailable: 9 kB\n"), Some(2 << 20));
        assert_eq!(total(""), None);
        let words = [3_usize, 1, 6, 65_536, 0, 0].map(usize::to_ne_bytes);
        assert_eq!(page_size_of(words.as_flattened()), Some(65_536));
        assert_eq!(page_size_of(&[]), None);
        let groups = control_groups("4:memory:/x\n0::/user/me\n");
        assert_eq!(
            groups,
            ["/sys/fs/cgroup/user/me", "/sys/fs/cgroup/user", "/sys/fs/cgroup"].map(PathBuf::from)
        );
        assert_eq!(control_groups("4:memory:/x\n"), [] as [PathBuf; 0]);
    }

    #[test]
    fn written_memory_counts_as_used() {
        let before = used().unwrap();
        let block = vec![1_u8; 64 << 20];
        let with = used().unwrap();
        assert!(with >= before + (60 << 20), "{before} bytes before, {with} with {} more", block.len());
        assert!(available().unwrap() > with);
    }
}
