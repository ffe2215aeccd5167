// The traffic of the simulator's benchmark on SimGrid (S4U), without any protocol. README.md explains how to run it.
//
//   simgrid burst MESSAGES BATCH BETWEEN     each of 2 x 100 hosts sends BATCH messages per millisecond, MESSAGES in total;
//                                            a share BETWEEN of the first cluster's messages goes to the second cluster
//   simgrid both MESSAGES BETWEEN            messages in both directions, at exponentially distributed intervals (mean 100 us)
//   simgrid pingpong ROUNDS                  pairs of hosts in each cluster exchange a message, ROUNDS times
//   simgrid paper                            ten hours with the messages of table 1 of the HC3I paper
//
// Prints the number of messages received, and the CPU time of the simulation in seconds, excluding its setup.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

namespace sg4 = simgrid::s4u;

constexpr int CLUSTERS = 2;
constexpr int NODES = 100;
constexpr int BYTES = 1064;

static std::vector<sg4::Mailbox*> mailboxes;
static std::mt19937_64 randomness(1);
static long received = 0;

static int draw(int bound) { return static_cast<int>(randomness() % bound); }

// A random host of `cluster`, not `me`.
static int peer(int cluster, int me) {
  if (me / NODES != cluster)
    return cluster * NODES + draw(NODES);
  int other = draw(NODES - 1);
  return cluster * NODES + other + (other >= me % NODES);
}

static void put(int to, int bytes) {
  static char content;
  mailboxes[to]->put_init(&content, bytes)->detach();
}

static bool happens(double probability) {
  return std::uniform_real_distribution<double>()(randomness) < probability;
}

static void burst(int me, long messages, int batch, double between) {
  for (long sent = 0; sent < messages;) {
    sg4::this_actor::sleep_for(1e-3);
    for (int it = 0; it < batch && sent < messages; ++it, ++sent)
      put(peer(me < NODES && happens(between) ? 1 : me / NODES, me), BYTES);
  }
  // Wait until all messages in transit have arrived.
  sg4::this_actor::sleep_for(1);
}

static void both(int me, long messages, double between) {
  std::exponential_distribution<double> pause(1 / 100e-6);
  for (long sent = 0; sent < messages; ++sent) {
    sg4::this_actor::sleep_for(pause(randomness));
    put(peer(happens(between) ? 1 - me / NODES : me / NODES, me), BYTES);
  }
  sg4::this_actor::sleep_for(1);
}

static void paper(int me) {
  const int counts[CLUSTERS][CLUSTERS] = {{2920, 145}, {11, 2497}};
  std::vector<std::pair<double, int>> sends;
  for (int to = 0; to < CLUSTERS; ++to) {
    int count = counts[me / NODES][to];
    int mine = count / NODES + (me % NODES < count % NODES);
    for (int it = 0; it < mine; ++it)
      sends.emplace_back(std::uniform_real_distribution<double>(0, 36000)(randomness), peer(to, me));
  }
  std::sort(sends.begin(), sends.end());
  for (auto [at, to] : sends) {
    sg4::this_actor::sleep_until(at);
    put(to, 10064);
  }
  sg4::this_actor::sleep_until(36001);
}

static void pingpong(int me, long rounds) {
  const int partner = me / NODES * NODES + NODES - 1 - me % NODES;
  for (long round = 0; round < rounds; ++round) {
    if (me < partner)
      put(partner, BYTES);
    mailboxes[me]->get<char>();
    ++received;
    if (me > partner)
      put(partner, BYTES);
  }
  sg4::this_actor::sleep_for(1);
}

static void receive(int me) {
  mailboxes[me]->set_receiver(sg4::Actor::self());
  while (true) {
    mailboxes[me]->get<char>();
    ++received;
  }
}

// A SAN within each cluster and a WAN between the clusters, with the latencies and bandwidths of the benchmark.
static std::vector<sg4::Host*> san_and_wan() {
  auto* world = sg4::create_full_zone("world");
  std::vector<sg4::Host*> hosts;
  std::vector<simgrid::kernel::routing::NetPoint*> routers;
  std::vector<sg4::NetZone*> zones;
  for (int cluster = 0; cluster < CLUSTERS; ++cluster) {
    const std::string name = "c" + std::to_string(cluster);
    auto* zone = sg4::create_star_zone(name);
    zone->set_parent(world);
    for (int node = 0; node < NODES; ++node) {
      const std::string id = name + "-" + std::to_string(node);
      auto* host = zone->create_host(id, 1e9);
      auto* link = zone->create_link(id + "-san", 80e6)->set_latency(5e-6)->seal();
      zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {sg4::LinkInRoute(link)}, true);
      hosts.push_back(host);
    }
    routers.push_back(zone->create_router(name + "-router"));
    zone->seal();
    zones.push_back(zone);
  }
  auto* wan = world->create_link("wan", 12.5e6 * NODES)->set_latency(5e-3)->seal();
  world->add_route(zones[0]->get_netpoint(), zones[1]->get_netpoint(), routers[0], routers[1],
                   {sg4::LinkInRoute(wan)}, true);
  world->seal();
  return hosts;
}

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::vector<sg4::Host*> hosts = san_and_wan();

  for (int me = 0; me < CLUSTERS * NODES; ++me)
    mailboxes.push_back(sg4::Mailbox::by_name(std::to_string(me)));
  for (int me = 0; me < CLUSTERS * NODES; ++me) {
    if (mode != "pingpong")
      sg4::Actor::create("receiver", hosts[me], [me] { receive(me); })->daemonize();
    sg4::Actor::create("sender", hosts[me], [=] {
      if (mode == "burst" && argc == 5)
        burst(me, std::atol(argv[2]), std::atoi(argv[3]), std::atof(argv[4]));
      else if (mode == "both" && argc == 4)
        both(me, std::atol(argv[2]), std::atof(argv[3]));
      else if (mode == "pingpong" && argc == 3)
        pingpong(me, std::atol(argv[2]));
      else if (mode == "paper" && argc == 2)
        paper(me);
      else
        std::exit(2);
    });
  }
  const std::clock_t begin = std::clock();
  engine.run();
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%ld %.6f\n", received, seconds);
  return 0;
}
