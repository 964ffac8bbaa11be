#include "tandem/data/story_grammar.h"

#include <string>
#include <utility>

#include "tandem/data/automaton_builder.h"

namespace tandem {
namespace {

using State = AutomatonBuilder::State;

struct Hero {
  std::string_view name, child, he, sentence_he;
};
constexpr Hero kHeroes[] = {
    {"Anna", "girl", "she", "She"}, {"Ben", "boy", "he", "He"},     {"Clara", "girl", "she", "She"},
    {"Finn", "boy", "he", "He"},    {"Lily", "girl", "she", "She"}, {"Tom", "boy", "he", "He"},
};
constexpr std::string_view kPlaces[] = {"park", "farm", "lake", "hill", "beach"};
constexpr std::string_view kFriends[] = {"cat", "dog", "fox", "hen", "rabbit"};

// Words that may stand in one another's place; a template names the set as <name>. A set may name later ones.
// None begins with a vowel where "a" goes before it.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"<object>", "<size> <colour> <thing>"},
    {"<animals>",
     "<many> <colour> (birds|bees|ducks|frogs|geese|ants|bugs|mice|cows|pigs|sheep|fish|snails|bats|"
     "crabs|swans|deer|goats|moths|wasps|toads|colts|doves|hawks)"},
    {"<trait>",
     "(kind|brave|happy|clever|quiet|funny|little|tall|shy|merry|young|gentle|wise|bold|busy|calm|"
     "loud|neat|nice|quick|jolly|proud|sweet|smart)"},
    {"<weather>", "(sunny|rainy|windy|warm|cold|foggy|bright|cloudy|snowy|dark|hot|fine|clear|dry|gray|wet)"},
    {"<hour>", "(day|morning|evening|night)"},
    {"<went>", "(walked|ran|went|hopped|skipped|rode|raced|sailed|drove|came|flew|swam)"},
    {"<size>",
     "(big|small|new|thin|soft|long|flat|round|tiny|huge|neat|wide|light|plain|short|fat|clean|fine|nice|"
     "dry|wet|warm|cold|bent)"},
    {"<colour>", "(red|blue|pink|gray|gold|green|black|white|brown|tan|yellow|purple)"},
    {"<thing>",
     "(ball|kite|hat|box|cup|key|map|pot|pan|bag|net|toy|bell|book|coin|drum|fan|rope|shoe|sock|star|ring|"
     "rock|bowl|flag|lamp|doll|boat|pen|cap|jar|leaf|bed|bib|bow|cane|can|cart|comb|cork|dish|fork|gem|"
     "horn|jug|kit|mug|nut|pin|rug|sled|tent|vase|wig)"},
    {"<saw>", "(saw|met|fed|drew|heard|chased|helped|found)"},
    {"<got>", "(saw|found|lost|hid|drew|made|took|held|sold|kept|got|broke)"},
    {"<where>",
     "(by|under|near|behind) the (tree|rock|gate|bush|wall|bench|pond|fence|barn|shed|well|log|bridge|"
     "house|path|tower)"},
    {"<many>", "(two|three|four|five|six|seven|nine|ten|some|many)"},
    {"<fur>",
     "(fat|thin|black|white|brown|gray|sleepy|hungry|wet|lost|noisy|tiny|sad|cross|wild|tame|big|small|"
     "kind|proud|lazy|red|tall|young)"},
    {"<play>",
     "(sing|jump|dance|swim|run|read|dig|draw|climb|hide|cook|rest|fly|spin|paint|sleep|skate|row|sew|"
     "wait|count|knit|march|hum)"},
    {"<played>",
     "(sang|jumped|danced|swam|ran|read|dug|drew|climbed|hid|cooked|rested|flew|spun|painted|slept|"
     "skated|rowed|sewed|waited|counted|knitted|marched|hummed)"},
    {"<food>",
     "(cake|soup|bread|jam|pie|rice|corn|fruit|cheese|nuts|honey|plums|peas|milk|figs|beans|pears|tea|ham|"
     "buns|eggs|kale|stew|toast)"},
    {"<mood>",
     "(glad|proud|tired|calm|warm|happy|sleepy|full|sad|cold|wet|dry|safe|well|rich|busy|brave|kind|sore|"
     "wise|shy|merry|quiet|hungry)"},
};

class Grammar {
 public:
  Automaton build() {
    std::vector<AutomatonBuilder::Branch> heroes;
    for (const Hero& hero : kHeroes) heroes.push_back({1.0, opening(hero)});
    return builder_.finish(builder_.choice(std::move(heroes)));
  }

 private:
  // What a story has bound so far; a template reads it as {name}, {he}, {He}, {child}, {place}, {friend}.
  struct Bound {
    const Hero& hero;
    std::string_view place = {};
    std::string_view animal = {};
  };

  State opening(const Hero& hero) {
    return sentence(
        "({name} was a <trait>, <trait> {child} with|Once a <trait> {child} named {name} had|"
        "{name} had a <object>, a <object> and) a <object>. ",
        {hero}, outing(hero));
  }

  State outing(const Hero& hero) {
    std::vector<AutomatonBuilder::Branch> places;
    for (const std::string_view place : kPlaces) {
      const Bound bound{hero, place};
      places.push_back({1.0, sentence("{place}. ", bound, discovery(bound))});
    }
    return sentence("One <weather> <hour> {he} <went> to the ", {hero}, builder_.choice(std::move(places)));
  }

  State discovery(const Bound& bound) {
    return sentence("({He} <got> a <object> (and a <object>|<where>)|At the {place} {he} <saw> <animals>). ",
                    bound, meeting(bound));
  }

  State meeting(const Bound& bound) {
    std::vector<AutomatonBuilder::Branch> friends;
    for (const std::string_view animal : kFriends) {
      const Bound with_friend{bound.hero, {}, animal};
      friends.push_back({1.0, sentence("{friend}. ", with_friend, talk(with_friend))});
    }
    return sentence("(Then {name} met|Near the {place} lived) a <fur>, <fur> ", bound,
                    builder_.choice(std::move(friends)));
  }

  State talk(const Bound& bound) {
    return sentence(
        "(\"Can you <play>, <play> and <play>?\" asked (the {friend}|{name}).|"
        "\"I (like|want|love|hate) <food>, <food> and <food>,\" said (the {friend}|{name}).) ",
        bound, deed(bound));
  }

  State deed(const Bound& bound) {
    return sentence(
        "(They <played>, <played>, <played> and ate <food>.|"
        "The {friend} gave {name} <animals> and a <object>.|"
        "{name} <played> and <played>, and the {friend} <played>.) ",
        bound, ending(bound));
  }

  State ending(const Bound& bound) {
    return sentence("({name}|The {friend}) was <mood>, <mood> and <mood>.\n", bound, Automaton::kStart);
  }

  // Alternatives with a long beginning in common are best written as one: merging them costs time for every
  // way through what they share.
  State sentence(std::string text, const Bound& bound, State next) {
    const std::pair<std::string_view, std::string_view> bindings[] = {
        {"{name}", bound.hero.name},      {"{child}", bound.hero.child}, {"{he}", bound.hero.he},
        {"{He}", bound.hero.sentence_he}, {"{place}", bound.place},      {"{friend}", bound.animal},
    };
    for (const auto& [key, value] : bindings) replace_all(text, key, value);
    for (const auto& [key, value] : kWords) replace_all(text, key, value);
    return builder_.pattern(text, next);
  }

  static void replace_all(std::string& text, std::string_view key, std::string_view value) {
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + value.size())) {
      text.replace(at, key.size(), value);
    }
  }

  AutomatonBuilder builder_;
};

}  // namespace

const Automaton& story_automaton() {
  static const Automaton automaton = Grammar().build();
  return automaton;
}

}  // namespace tandem
