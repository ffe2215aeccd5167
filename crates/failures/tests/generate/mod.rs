//! Generates large failure traces: the same bytes every time.

use std::io::{self, Write};

/// A sequence of numbers without visible order (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Writes this many records in the format of LANL, of about 125 bytes each, on 1000 nodes of one system. About one
/// in 50 has no repair time.
pub(crate) fn lanl(records: u64, out: &mut impl Write) -> io::Result<()> {
    const CAUSES: [&str; 6] = [
        "Power Outage,,,,,",
        ",Memory Dimm,,,,",
        ",,Operator,,,",
        ",,,Switch,,",
        ",,,,Unresolvable,",
        ",,,,,Other Software",
    ];
    out.write_all(b"System,machine type,nodes,procstot,procsinnode,nodenum,nodenumz,node install,node prod,node decom,fru type,mem,cputype,memtype,num intercon,purpose,Prob Started,Prob Fixed,Down Time,Facilities,Hardware,Human Error,Network,Undetermined,Software,Same Event\n")?;
    let mut numbers = Numbers(1);
    // Records are spread over ten years of 12 months with 28 days.
    let minutes: u64 = 10 * 12 * 28 * 24 * 60;
    let date = |minute: u64| {
        let (day, minute) = (minute / 1440, minute % 1440);
        let (month, year) = (day / 28 % 12 + 1, 1996 + day / 28 / 12);
        format!("{month}/{}/{year} {}:{:02}", day % 28 + 1, minute / 60, minute % 60)
    };
    for index in 0..records {
        let start = (u128::from(index) * u128::from(minutes) / u128::from(records)) as u64;
        let repair = 1 + numbers.below(600);
        let fixed = if numbers.below(50) == 0 { String::new() } else { date(start + repair) };
        let (node, cause) = (numbers.below(1000), CAUSES[numbers.below(6) as usize]);
        writeln!(
            out,
            "20,cluster,1000,4000,4,{node},{node},1-Jun,1-Aug,current,part,16,3,1,1,graphics.fe,{},{fixed},{repair},{cause},No",
            date(start)
        )?;
    }
    Ok(())
}

/// Writes this many events in the format of InfiniteHBD, of about 290 bytes each, on 1000 nodes. Each start is
/// followed by its end, up to 100 events later.
pub(crate) fn infinitehbd(events: u64, out: &mut impl Write) -> io::Result<()> {
    const CLASSES: [&str; 4] = ["GPU", "NIC", "Parameter Plane Cable", "Fan"];
    let mut numbers = Numbers(2);
    let mut open: std::collections::VecDeque<(u64, usize)> = std::collections::VecDeque::new();
    for index in 0..events {
        let is_end = open.len() as u64 == events - index || (open.len() > 50 && numbers.below(2) == 0);
        let ended = if is_end { open.pop_front() } else { None };
        let (node, class) = ended.unwrap_or_else(|| (numbers.below(1000), numbers.below(4) as usize));
        let kind = if ended.is_some() { "fault_end" } else { "fault_start" };
        if ended.is_none() {
            open.push_back((node, class));
        }
        let class = CLASSES[class];
        write!(
            out,
            "{}\n    {{\n        \"node_id\": \"067eb1e2-ea0b-4069-b64e-{node:012}\",\n        \"event_time\": {:.4},\n        \"event_type\": \"{kind}\",\n        \"fault_type\": {{\n            \"Level\": \"Hardware Failure\",\n            \"Class\": \"{class}\",\n            \"Desc\": \"{class} error\"\n        }}\n    }}",
            if index == 0 { "[" } else { "," },
            index as f64 * 0.001
        )?;
    }
    out.write_all(b"\n]\n")
}
