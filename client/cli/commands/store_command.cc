// `cohort store`: keys, counters and queues.
//
// One file, though long: its commands share their flags and the formats of values and events.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/format.h"
#include "client/cli/output/table.h"

namespace cohort::cli {
namespace {

struct Flags {
  std::string group;
  std::vector<std::string> keys;
  std::vector<std::string> queues;
  std::vector<std::string> also;  // KEY=VALUE
  std::string key;  // or queue, or prefix
  std::string value;
  int64_t delta = 0;
  bool prefix = false;
  bool keys_only = false;
  std::optional<int64_t> from_revision;
  std::optional<absl::Duration> wait;
  std::optional<absl::Duration> expire;
  std::optional<int64_t> if_revision;
  std::optional<std::string> if_value;
};

// The timeout of calls that do not wait, and the time that a waiting call may take besides its
// wait.
constexpr absl::Duration kDefaultTimeout = absl::Seconds(30);
constexpr absl::Duration kProbeTimeout = absl::Seconds(10);

absl::Duration WaitOf(const Flags& flags) { return flags.wait.value_or(absl::ZeroDuration()); }

absl::Duration TimeoutWith(const Context& context, const Flags& flags) {
  return context.TimeoutOr(WaitOf(flags) + kDefaultTimeout);
}

absl::StatusOr<std::string> ReadValue(Context& context, const Flags& flags) {
  if (flags.value == "-") return ReadPayload(context, "-");
  return flags.value;
}

std::string FormatExpiry(const client::KeyValue& key_value) {
  return key_value.expires_in.has_value() ? ShortDuration(*key_value.expires_in) : "";
}

std::string FormatValues(const std::vector<client::KeyValue>& values) {
  Table table({"KEY", ">REVISION", "EXPIRES IN", "VALUE"});
  for (const client::KeyValue& value : values) {
    table.AddRow(
        {value.key, absl::StrCat(value.revision), FormatExpiry(value), Printable(value.value)});
  }
  return table.ToString();
}

// One number as the answer: bare as text, under its name as JSON.
ExitCode PrintNumber(Context& context, const char* name, int64_t number) {
  return context.Print({{name, number}}, absl::StrCat(number, "\n"));
}

absl::StatusOr<ExitCode> Get(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  COHORT_ASSIGN_OR_RETURN(const client::GetResult result,
                          store->Get(flags.keys, WaitOf(flags), 0, TimeoutWith(context, flags)));
  Printer& printer = context.printer();
  if (context.json()) {
    printer.PrintJson({{"values", ToArray(result.values)},
                       {"missing_keys", result.missing_keys},
                       {"revision", result.revision}});
  } else if (flags.keys.size() == 1 && result.values.size() == 1) {
    printer.PrintValue(result.values[0].value);
  } else if (!result.values.empty()) {
    printer.PrintText(FormatValues(result.values));
  }
  if (result.missing_keys.empty()) return ExitCode::kOk;
  printer.Remark(absl::StrCat(
      "cohort: not there: ", Printable(absl::StrJoin(result.missing_keys, " ")),
      flags.wait.has_value() ? absl::StrCat(" (waited ", ShortDuration(*flags.wait), ")") : ""));
  return flags.wait.has_value() ? ExitCode::kMissing : ExitCode::kNotFound;
}

absl::StatusOr<ExitCode> Put(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::string value, ReadValue(context, flags));
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  std::vector<client::PutEntry> entries = {{flags.key, value, flags.if_revision, flags.if_value}};
  for (const std::string& pair : flags.also) {
    const std::pair<std::string, std::string> also =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    entries.push_back({also.first, also.second, std::nullopt, std::nullopt});
  }
  COHORT_ASSIGN_OR_RETURN(
      const client::PutResult result,
      store->MultiPut(entries, flags.expire, context.TimeoutOr(kDefaultTimeout)));
  if (context.json()) {
    Json json = {{"written", result.written}, {"revision", result.revision}};
    if (result.current.has_value()) json["current"] = ToJson(*result.current);
    context.printer().PrintJson(json);
  } else if (result.written) {
    context.printer().PrintText(absl::StrCat("revision ", result.revision, "\n"));
  }
  if (result.written) return ExitCode::kOk;
  const std::string expected = absl::StrCat(
      flags.if_revision.has_value() ? absl::StrCat(" at revision ", *flags.if_revision) : "",
      flags.if_value.has_value() ? absl::StrCat(" with value ", Printable(*flags.if_value)) : "");
  context.printer().Remark(absl::StrCat(
      "cohort: not written: expected ", Printable(flags.key), expected, ", but it is ",
      !result.current.has_value()
          ? "absent"
          : absl::StrCat("at revision ", result.current->revision, " with value ",
                         Printable(result.current->value))));
  return ExitCode::kConditionNotMet;
}

absl::StatusOr<ExitCode> Delete(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  COHORT_ASSIGN_OR_RETURN(const int64_t count, store->Delete(flags.key, flags.prefix,
                                                             context.TimeoutOr(kDefaultTimeout)));
  PrintNumber(context, "deleted_count", count);
  // A prefix may have no keys; a named key should exist.
  if (count > 0 || flags.prefix) return ExitCode::kOk;
  context.printer().Remark(absl::StrCat("cohort: not there: ", Printable(flags.key)));
  return ExitCode::kNotFound;
}

absl::StatusOr<ExitCode> List(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  constexpr int kPageSize = 1000;
  std::vector<client::KeyValue> values;
  client::RangeResult page;
  do {
    COHORT_ASSIGN_OR_RETURN(
        page, store->Range(flags.key, page.next, kPageSize, flags.keys_only, /*count_only=*/false,
                           context.TimeoutOr(kDefaultTimeout)));
    std::move(page.values.begin(), page.values.end(), std::back_inserter(values));
  } while (!page.next.empty());

  Printer& printer = context.printer();
  if (context.json() && flags.keys_only) {
    Json keys = Json::array();
    for (const client::KeyValue& value : values) keys.push_back(value.key);
    printer.PrintJson({{"keys", std::move(keys)}, {"revision", page.revision}});
  } else if (context.json()) {
    printer.PrintJson({{"values", ToArray(values)}, {"revision", page.revision}});
  } else if (flags.keys_only) {
    for (const client::KeyValue& value : values) printer.PrintText(Printable(value.key) + "\n");
  } else {
    printer.PrintText(values.empty() ? "no keys\n" : FormatValues(values));
  }
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Add(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  COHORT_ASSIGN_OR_RETURN(const int64_t value,
                          store->Add(flags.key, flags.delta, context.TimeoutOr(kDefaultTimeout)));
  return PrintNumber(context, "value", value);
}

absl::StatusOr<ExitCode> Append(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::string value, ReadValue(context, flags));
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  COHORT_ASSIGN_OR_RETURN(const int64_t size_bytes,
                          store->Append(flags.key, value, context.TimeoutOr(kDefaultTimeout)));
  return PrintNumber(context, "size_bytes", size_bytes);
}

absl::StatusOr<ExitCode> Push(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::string value, ReadValue(context, flags));
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  COHORT_ASSIGN_OR_RETURN(
      const int64_t sequence,
      store->QueuePush(flags.key, value, flags.expire, context.TimeoutOr(kDefaultTimeout)));
  return context.Print({{"sequence", sequence}}, absl::StrCat("sequence ", sequence, "\n"));
}

absl::StatusOr<ExitCode> Pop(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  COHORT_ASSIGN_OR_RETURN(const std::optional<client::QueueItem> item,
                          store->QueuePop(flags.key, WaitOf(flags), TimeoutWith(context, flags)));
  if (context.json()) {
    Json json = {{"found", item.has_value()}};
    if (item.has_value()) {
      SetText(json, "value", item->value);
      json["sequence"] = item->sequence;
    }
    context.printer().PrintJson(json);
  } else if (item.has_value()) {
    context.printer().PrintValue(item->value);
  }
  if (item.has_value()) return ExitCode::kOk;
  context.printer().Remark(absl::StrCat("cohort: queue ", Printable(flags.key), " is empty"));
  return ExitCode::kConditionNotMet;
}

absl::StatusOr<ExitCode> Length(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  client::GetOptions options;
  options.wait = WaitOf(flags);
  options.queues = flags.queues;
  COHORT_ASSIGN_OR_RETURN(const client::GetResult result,
                          store->Get({}, options, TimeoutWith(context, flags)));
  std::vector<std::string> empty;
  Table table({"QUEUE", ">LENGTH"});
  Json lengths = Json::array();
  for (const client::QueueLength& length : result.queue_lengths) {
    if (length.length == 0) empty.push_back(length.queue);
    table.AddRow({length.queue, absl::StrCat(length.length)});
    lengths.push_back({{"queue", length.queue}, {"length", length.length}});
  }
  if (context.json()) {
    context.printer().PrintJson({{"queue_lengths", std::move(lengths)}});
  } else if (result.queue_lengths.size() == 1) {
    context.printer().PrintText(absl::StrCat(result.queue_lengths[0].length, "\n"));
  } else {
    context.printer().PrintText(table.ToString());
  }
  if (!flags.wait.has_value() || empty.empty()) return ExitCode::kOk;
  context.printer().Remark(absl::StrCat("cohort: empty: ", Printable(absl::StrJoin(empty, " ")),
                                        " (waited ", ShortDuration(*flags.wait), ")"));
  return ExitCode::kMissing;
}

std::string FormatEvent(const client::KeyEvent& event) {
  const client::KeyValue& key_value = event.key_value;
  const std::string head = absl::StrCat("rev ", key_value.revision, "  ");
  if (event.deleted) {
    return absl::StrCat(head, event.expired ? "expired" : "deleted", "  ", Printable(key_value.key),
                        "\n");
  }
  return absl::StrCat(head, "put  ", Printable(key_value.key), " = ", Printable(key_value.value),
                      "\n");
}

absl::StatusOr<ExitCode> Watch(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto store, context.Store(flags.group));
  // A watch waits while the coordinator is away. So this first request finds out whether the
  // coordinator is there at all, and the revision of "now".
  const auto probe = [&] {
    return store->Range(flags.key, "", /*page_size=*/1, /*keys_only=*/true, /*count_only=*/true,
                        context.TimeoutOr(kProbeTimeout));
  };
  COHORT_ASSIGN_OR_RETURN(client::RangeResult now, probe());
  int64_t seen = flags.from_revision.value_or(now.revision);
  Printer& printer = context.printer();
  const auto on_event = [&](const client::KeyEvent& event) {
    seen = event.key_value.revision;
    context.Print(ToJson(event), FormatEvent(event));
    return printer.out_ok();
  };
  const Clock& clock = *context.environment().clock;
  const Instant deadline = clock.Now() + context.TimeoutOr(absl::InfiniteDuration());
  while (true) {
    const int64_t from = seen;
    const absl::Status status = store->Watch(flags.key, from, on_event, deadline - clock.Now());
    // The coordinator kept no events over its restart. But a revision that the user gave is an
    // error of the user.
    if (!absl::IsOutOfRange(status) || flags.from_revision == seen) {
      COHORT_RETURN_IF_ERROR(status);
      return ExitCode::kOk;
    }
    COHORT_ASSIGN_OR_RETURN(now, probe());
    seen = now.revision;
    printer.Remark(absl::StrCat(
        "cohort: changes after revision ", from,
        " are not known (the coordinator restarted, or keeps it no longer); watching on from "
        "revision ",
        seen));
  }
}

using Command = absl::StatusOr<ExitCode> (*)(Context&, const Flags&);

// `cohort store`. Its commands share their flags.
struct Noun {
  CLI::App& app;
  Context& context;
  std::shared_ptr<Flags> flags;

  CLI::App* Add(const char* name, const char* description, const char* examples, Command command,
                const char* timeout = "30s") const {
    return AddCommand(
        app, context, name, description, examples,
        [&context = context, flags = flags, command] { return command(context, *flags); }, timeout);
  }
};

CLI::Option* AddKey(CLI::App* command, Flags& flags, const char* name, const char* description) {
  return command->add_option(name, flags.key, description);
}

void AddValue(CLI::App* command, Flags& flags) {
  command->add_option("VALUE", flags.value, "the value; '-' is standard input")->required();
}

void AddReadsAndWrites(const Noun& noun) {
  Flags& flags = *noun.flags;
  CLI::App* get = noun.Add("get", "Values of keys, or wait until they exist",
                           "cohort store get config/path\n"
                           "cohort store get ready/0 ready/1 --wait 30s --json",
                           Get, "30s, and what --wait says");
  get->add_option("KEY", flags.keys, "keys, at most 1000")->required();
  AddDuration(*get, "--wait", flags.wait, "how long to wait until all are there");

  CLI::App* put = noun.Add("put", "Write a key",
                           "cohort store put config/path /data/run7\n"
                           "cohort store put leader host-a --if-revision 0 --expire 30s\n"
                           "cohort store put leader host-b --if-value host-a --also epoch=2\n"
                           "cohort store put config/file - < config.json",
                           Put);
  AddKey(put, flags, "KEY", "the key")->required();
  AddValue(put, flags);
  AddDuration(*put, "--expire", flags.expire, "delete the key after this time");
  put->add_option("--if-revision", flags.if_revision,
                  "write only if the key is at this revision; 0: only if it is absent")
      ->check(WholeNumber(0))
      ->type_name("REVISION");
  put->add_option("--if-value", flags.if_value,
                  "write only if the key has this value; an absent key counts as empty")
      ->type_name("VALUE");
  put->add_option("--also", flags.also, "another key, written in the same step: all keys or none")
      ->type_name("KEY=VALUE")
      ->check(CLI::Validator(
          [](const std::string& pair) {
            return pair.find('=') == std::string::npos ? "expected KEY=VALUE, got " + pair
                                                       : std::string();
          },
          ""));

  CLI::App* erase = noun.Add("delete", "Delete a key, or all keys with a prefix",
                             "cohort store delete config/path\n"
                             "cohort store delete ready/ --prefix",
                             Delete);
  AddKey(erase, flags, "KEY", "the key or prefix")->required();
  erase->add_flag("--prefix", flags.prefix, "KEY is a prefix");

  CLI::App* list = noun.Add("list", "Keys with a prefix, in order",
                            "cohort store list\n"
                            "cohort store list config/ --group trainer-weights",
                            List);
  AddKey(list, flags, "PREFIX", "the prefix (default: all)");
  list->add_flag("--keys-only", flags.keys_only, "without values");
}

void AddUpdates(const Noun& noun) {
  Flags& flags = *noun.flags;
  CLI::App* count = noun.Add("add", "Add to a counter and print its new value",
                             "cohort store add steps 1\n"
                             "cohort store add budget -5",
                             Add);
  AddKey(count, flags, "KEY", "the counter")->required();
  count->add_option("DELTA", flags.delta, "a whole number")
      ->required()
      ->check(WholeNumber(std::numeric_limits<int64_t>::min()));

  CLI::App* append = noun.Add("append", "Append to a value and print its new size",
                              "cohort store append log 'step 17 done;'", Append);
  AddKey(append, flags, "KEY", "the key")->required();
  AddValue(append, flags);
}

void AddQueues(const Noun& noun) {
  Flags& flags = *noun.flags;
  CLI::App* push = noun.Add("push", "Put a value at the end of a queue",
                            "cohort store push prompts 'explain NCCL'", Push);
  AddKey(push, flags, "QUEUE", "the queue")->required();
  AddValue(push, flags);
  AddDuration(*push, "--expire", flags.expire, "drop the value if no client pops it in this time");

  CLI::App* pop =
      noun.Add("pop", "Take the value at the head of a queue; exits with 8 if it is empty",
               "cohort store pop prompts --wait 1m", Pop, "30s, and what --wait says");
  AddKey(pop, flags, "QUEUE", "the queue")->required();
  AddDuration(*pop, "--wait", flags.wait, "how long to wait for a value");

  CLI::App* length = noun.Add("length", "How many values wait in queues",
                              "cohort store length prompts\n"
                              "cohort store length prompts answers --wait 30s",
                              Length, "30s, and what --wait says");
  length->add_option("QUEUE", flags.queues, "queues, at most 1000")->required();
  AddDuration(*length, "--wait", flags.wait, "how long to wait until each has a value");
}

void AddWatch(const Noun& noun) {
  Flags& flags = *noun.flags;
  CLI::App* watch = noun.Add("watch", "Changes of keys with a prefix, a line each, until --timeout",
                             "cohort store watch config/\n"
                             "cohort store watch '' --from 17 --json",
                             Watch, "for ever");
  AddKey(watch, flags, "PREFIX", "the prefix; '' is all")->required();
  watch
      ->add_option("--from", flags.from_revision,
                   "changes after this revision (default: from now on)")
      ->check(WholeNumber(0))
      ->type_name("REVISION");
}

}  // namespace

void AddStoreCommand(CLI::App& parent, Context& context) {
  const Noun noun{*AddNoun(parent, "store", "Keys, counters and queues"), context,
                  std::make_shared<Flags>()};
  noun.app.add_option("--group", noun.flags->group,
                      "the group's namespace (default: the tenant's own)");
  AddReadsAndWrites(noun);
  AddUpdates(noun);
  AddQueues(noun);
  AddWatch(noun);
}

}  // namespace cohort::cli
