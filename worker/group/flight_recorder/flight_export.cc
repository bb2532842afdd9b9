#include "worker/group/flight_recorder/flight_export.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/host_name.h"
#include "worker/group/bootstrap/host_identity.h"

namespace cohort::worker {
namespace {

client::FlightCall Export(const FlightEntry& entry, absl::Duration calendar) {
  client::FlightCall call;
  call.sequence = entry.sequence;
  call.generation = entry.generation;
  call.number = entry.number;
  call.collective = entry.collective;
  call.type = entry.type;
  call.bytes = entry.bytes;
  call.root = entry.root;
  call.on_stream = entry.on_stream;
  call.started = entry.started + calendar;
  if (entry.took.has_value()) call.finished = call.started + *entry.took;
  if (entry.device_started.has_value()) call.device_started = *entry.device_started + calendar;
  if (entry.device_ended.has_value()) call.device_finished = *entry.device_ended + calendar;
  call.state = StateOf(entry);
  return call;
}

}  // namespace

client::FlightRecord ExportFlightRecord(const std::vector<FlightEntry>& entries) {
  client::FlightRecord record;
  record.host = HostName();
  record.pid = getpid();
  record.clock = ClockIdentity();
  // Records use steady time; the difference lets readers compute calendar time.
  const Instant now = Clock::Steady().Now();
  record.taken = absl::Now();
  record.calendar = record.taken - now;
  record.calls.reserve(entries.size());
  for (const FlightEntry& entry : entries) record.calls.push_back(Export(entry, record.calendar));
  return record;
}

}  // namespace cohort::worker
