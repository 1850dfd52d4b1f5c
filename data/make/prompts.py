"""User prompts for generating draft-model training text.

Every prompt is put together from the tables below: a kind has a list of subjects and a list of templates, and a
template is filled with one subject and with random choices for its remaining {slots}. In a template, "||" separates
the user's turns. Kinds named in OTHER_KINDS are never used for training; of the subjects of every other kind a fixed
part is kept out of training as well ("heldout").
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    id: str
    kind: str
    topic: str
    split: str
    turns: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    topic: str
    kept_out: bool
    values: dict[str, str]


@dataclass(frozen=True)
class Kind:
    name: str
    subjects: list[Subject]
    templates: list[str]
    casual: bool = True  # some prompts may be typed carelessly (no capital, no final mark)


N_TRAIN = 4500
N_HELDOUT = 240
N_OTHER = 240
KEEP_OUT_EVERY = 8


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def items(text: str) -> list[str]:
    return [item.strip() for item in " ".join(text.split()).split(";") if item.strip()]


# ---------------------------------------------------------------------------------------------------------------------
# Topics. "*" marks a plural.

THINGS = {
    "science": """photosynthesis; gravity; magnetism; the water cycle; black holes*; atoms*; sound waves*; static
        electricity; the periodic table; evolution; DNA; plate tectonics; light; friction; acids*; the speed of light;
        vaccines*; the scientific method; crystals*; evaporation""",
    "nature": """volcanoes*; earthquakes*; ocean tides*; coral reefs*; rainforests*; honeybees*; whales*; migrating
        birds*; mushrooms*; deserts*; glaciers*; thunderstorms*; rainbows*; spiders*; octopuses*; wolves*; ants*; owls*;
        oak trees*; wetlands*; bats*; penguins*; the seasons*; caves*""",
    "space": """the Moon; Mars; the Sun; solar eclipses*; comets*; satellites*; the Milky Way; space stations*;
        telescopes*""",
    "history": """the Roman Empire; ancient Egypt; the Industrial Revolution; the printing press; the Silk Road; the
        Vikings*; medieval castles*; the Renaissance; the Great Wall of China; the French Revolution; the Black Death;
        the Olympic Games*; the Cold War; the first railways*; ancient Greece; the invention of writing; the Aztecs*""",
    "computing": """the internet; computer viruses*; search engines*; databases*; encryption; machine learning;
        operating systems*; passwords*; cloud storage; binary numbers*; sorting algorithms*; version control; open
        source software; computer memory; web browsers*; spreadsheets*; touch screens*; recursion""",
    "machines": """the bicycle; refrigerators*; steam engines*; wind turbines*; solar panels*; microwave ovens*;
        elevators*; electric cars*; airplanes*; submarines*; washing machines*; clocks*; batteries*; 3D printers*;
        suspension bridges*; cameras*; helicopters*; traffic lights*""",
    "food": """chocolate; cheese; bread; olive oil; coffee; tea; rice; spices*; fermented food; honey; pasta; vitamins*;
        sugar; soup; yogurt; potatoes*; salt""",
    "health": """sleep; the heart; the immune system; allergies*; muscles*; the human brain; stress; teeth*; hydration;
        posture; headaches*; the digestive system; first aid; skin; the common cold; lungs*; eyesight""",
    "sport": """soccer; tennis; chess; swimming; basketball; yoga; marathon running; rock climbing; cricket; cycling;
        table tennis; judo; gymnastics; sailing""",
    "money": """inflation; taxes*; interest rates*; the stock market; insurance; credit cards*; mortgages*; budgets*;
        central banks*; pensions*; supply and demand; international trade; compound interest""",
    "work": """remote work; teamwork; job interviews*; meetings*; deadlines*; leadership; trade unions*; customer
        service; time management; small businesses*; marketing; burnout; internships*; feedback""",
    "society": """democracy; copyright; contracts*; constitutions*; juries*; human rights*; elections*; patents*;
        consumer rights*; the United Nations; privacy; recycling; public libraries*; volunteering; public transport""",
    "arts": """jazz; opera; watercolor painting; photography; the guitar; the piano; ballet; sculpture; theater;
        novels*; film music; pottery; origami; architecture; comics*; museums*; calligraphy""",
    "places": """Japan; Brazil; Egypt; the Amazon River; the Sahara; the Alps*; Iceland; India; Paris; New York City;
        the Mediterranean Sea; Mount Everest; Kenya; Australia; the Pacific Ocean; Antarctica; Canada; Istanbul""",
    "school": """fractions*; prime numbers*; percentages*; the Pythagorean theorem; probability; triangles*; the number
        pi; grammar; essays*; homework; averages*; algebra; negative numbers*; punctuation""",
    "home": """houseplants*; cats*; dogs*; vegetable gardens*; furniture; laundry; compost; candles*; soap; umbrellas*;
        neighbors*; birthdays*; toys*; shoes*; board games*; mirrors*""",
    "mind": """memory; habits*; creativity; friendship; honesty; curiosity; dreams*; humor; patience; happiness;
        language; kindness""",
}
WORKING = ("science", "nature", "space", "computing", "machines", "health", "money")  # "how does it work" makes sense

ACTIVITIES = {
    "home": """clean a bicycle chain; unclog a sink; paint a bedroom; iron a shirt; sew on a button; fix a squeaky door;
        fold a fitted sheet; hang a picture straight; remove a coffee stain; organize a small closet""",
    "food": """boil an egg; bake a loaf of bread; cook rice; make pancakes; sharpen a kitchen knife; plan a weekly menu;
        brew good coffee; store fresh herbs; chop an onion; make vegetable soup""",
    "garden": """plant tomatoes; start a compost pile; prune a rose bush; grow basil indoors; repot a cactus; attract
        birds to a garden; water plants during a holiday""",
    "work": """prepare for a job interview; write a resume; run a short meeting; ask for a raise; train a new employee;
        give a presentation; handle an angry customer; organize an email inbox""",
    "computing": """choose a strong password; back up photos; set up a home network; clean a keyboard; install a
        printer; free up space on a phone; spot a phishing email; learn to program""",
    "money": """make a monthly budget; save for a holiday; open a bank account; compare insurance offers; pay off a
        small debt; sell an old bicycle; split a bill with friends""",
    "health": """start running; stretch before exercise; treat a small burn; fall asleep faster; drink more water; stop
        a nosebleed; reduce screen time; eat more vegetables""",
    "school": """study for an exam; write an essay; take useful notes; learn new vocabulary; read a long book; solve a
        word problem; give a book report; find sources for a project""",
    "travel": """pack a suitcase; plan a weekend trip; read a map; travel with a baby; change a flat tire; find a cheap
        hotel; get over jet lag; camp in the rain""",
    "social": """make new friends; apologize to a friend; host a dinner party; choose a birthday gift; write a thank-you
        note; introduce two people; welcome a new neighbor; say no politely""",
    "hobby": """learn the guitar; take better photos; start a book club; knit a scarf; play chess; draw a face; fold a
        paper airplane; train a puppy; build a birdhouse; juggle three balls""",
}
DOUBLED = {"stop", "chop", "unclog", "repot", "plan", "run", "get", "set", "split", "knit", "spot", "swim", "cut"}


def gerund(phrase: str) -> str:
    verb, _, rest = phrase.partition(" ")
    if verb in DOUBLED:
        verb += verb[-1] + "ing"
    elif verb.endswith("e") and not verb.endswith("ee"):
        verb = verb[:-1] + "ing"
    else:
        verb += "ing"
    return f"{verb} {rest}"


def upper_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def thing_subjects(domains: tuple[str, ...] = tuple(THINGS)) -> list[Subject]:
    out = []
    for domain, table in THINGS.items():
        for i, entry in enumerate(items(table)):
            name, plural = entry.rstrip("*"), entry.endswith("*")
            values = {
                "t": name,
                "is": "are" if plural else "is",
                "does": "do" if plural else "does",
                "s": "" if plural else "s",
                "has": "have" if plural else "has",
                "it": "they" if plural else "it",
                "them": "them" if plural else "it",
            }
            if domain in domains:
                out.append(Subject(name, i % KEEP_OUT_EVERY == 5, values))
    return out


def activity_subjects() -> list[Subject]:
    out = []
    for table in ACTIVITIES.values():
        for i, name in enumerate(items(table)):
            out.append(Subject(name, i % KEEP_OUT_EVERY == 5, {"a": name, "ing": gerund(name)}))
    return out


def table_subjects(rows: list[str], *names: str) -> list[Subject]:
    """Subjects from a table: one row each, its columns separated by "|" and named by names."""
    out = []
    for i, row in enumerate(rows):
        cells = [cell.strip() for cell in row.split("|")]
        if len(cells) != len(names):
            raise ValueError(f"{len(names)} columns expected: {row}")
        out.append(Subject(cells[0][:60], i % KEEP_OUT_EVERY == 5, dict(zip(names, cells, strict=True))))
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Slots shared by many kinds.

SLOTS: dict[str, list[str] | Callable[[random.Random], str]] = {
    "n1": lambda r: str(r.randint(2, 12)),
    "n2": lambda r: str(r.randint(13, 98)),
    "n3": lambda r: str(r.randint(101, 980)),
    "n4": lambda r: f"{r.randint(11, 98) * 100:,}",
    "pct": lambda r: str(r.choice([5, 10, 12, 15, 20, 25, 30, 40, 60, 75])),
    "price": lambda r: f"{r.randint(1, 49)}.{r.choice(['25', '50', '75', '99', '20', '80'])}",
    "k": ["three", "four", "five", "six", "seven", "3", "5", "8", "10"],
    "ks": ["two", "three", "four"],
    "end": [
        "",
        "",
        "",
        "",
        "",
        " Keep it short.",
        " Please be brief.",
        " Answer in two sentences.",
        " Use simple words.",
        " One paragraph is enough.",
        " Please give an example.",
        " Thanks!",
        " I have no background in this.",
        " In at most 60 words, please.",
        " Explain your reasoning.",
        " A short answer is fine.",
        " Be precise.",
        " Go into some detail.",
        " Avoid technical terms.",
        " Use a friendly tone.",
    ],
    "start": [
        "",
        "",
        "",
        "",
        "",
        "",
        "Hi! ",
        "Quick question: ",
        "I'm curious. ",
        "Hello, ",
        "Please help me: ",
        "My daughter asked me this. ",
        "For a school project: ",
        "I was wondering: ",
        "For a friend: ",
    ],
    "who": [
        "a beginner",
        "a teenager",
        "a busy parent",
        "an older person",
        "a college student",
        "a curious adult",
        "someone who is new to it",
        "a visitor from abroad",
        "a new colleague",
        "a class of twelve-year-olds",
        "a nervous person",
        "someone in a hurry",
        "my grandfather",
        "a small team",
    ],
    "tone": [
        "friendly",
        "formal",
        "polite",
        "cheerful",
        "serious",
        "warm",
        "professional",
        "calm",
        "apologetic",
        "enthusiastic",
        "firm but polite",
        "light-hearted",
        "neutral",
        "respectful",
    ],
    "form": [
        "as a bullet list",
        "as a numbered list",
        "in one paragraph",
        "in three sentences",
        "in plain English",
        "as a short table",
        "in a few lines",
        "with one example each",
        "in about 100 words",
    ],
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    "month": ["January", "March", "April", "June", "July", "September", "October", "December"],
    "hour": ["8:30", "9:15", "noon", "2 p.m.", "4:45", "6 p.m.", "10 o'clock"],
    "city": [
        "Lisbon",
        "Toronto",
        "Nairobi",
        "Oslo",
        "Madrid",
        "Chicago",
        "Seoul",
        "Vienna",
        "Lima",
        "Dublin",
        "Cairo",
        "Kyoto",
        "Melbourne",
        "Prague",
        "Boston",
        "Athens",
        "Mumbai",
        "Edinburgh",
    ],
    "fruit": ["apples", "pears", "lemons", "plums", "melons", "peaches", "bananas", "oranges", "cherries", "figs"],
    "goods": [
        "notebooks",
        "candles",
        "pencils",
        "towels",
        "light bulbs",
        "batteries",
        "mugs",
        "envelopes",
        "blankets",
        "paint brushes",
        "folders",
        "plates",
    ],
    "colour": ["red", "blue", "green", "yellow", "grey", "black", "white", "orange", "purple", "brown"],
    "job": ["nurse", "plumber", "teacher", "baker", "pilot", "librarian", "carpenter", "chemist", "gardener", "cook"],
    "place": [
        "a lighthouse",
        "an old library",
        "a night train",
        "a mountain village",
        "a crowded market",
        "a quiet harbor",
        "a space station",
        "a small bakery",
        "a forest in winter",
        "an empty school",
        "a desert town",
        "a hospital at night",
        "a castle by the sea",
        "a city roof",
        "a farm in the hills",
    ],
    "twist": [
        "finds a locked box",
        "receives a letter meant for someone else",
        "loses something important",
        "makes an unlikely friend",
        "learns to trust a stranger",
        "must choose between two promises",
        "hears a strange sound every night",
        "discovers a map",
        "breaks a rule for a good reason",
        "misses the last boat home",
        "fixes an old mistake",
        "has to tell the truth",
        "gets help from an animal",
        "finally says goodbye",
    ],
    "genre": ["funny", "mysterious", "gentle", "sad but hopeful", "exciting", "quiet", "slightly scary", "magical"],
    "style": [
        "more formal",
        "more friendly",
        "shorter",
        "simpler",
        "more polite",
        "more exciting",
        "clearer",
        "less negative",
        "more direct",
        "suitable for a business email",
        "easier for a child to understand",
    ],
}

# ---------------------------------------------------------------------------------------------------------------------
# Factual questions.

FACT_QUESTIONS = lines("""
What is the capital of Canada?
How many bones does an adult human have?
At what temperature does water boil at sea level?
Which planet is closest to the Sun?
Who wrote the play Romeo and Juliet?
What is the largest ocean on Earth?
How many continents are there, and what are their names?
Which gas do plants take in from the air?
What is the chemical symbol for gold?
In which country would you find Machu Picchu?
How long does it take the Earth to go around the Sun?
What is the tallest animal in the world?
Which language has the most native speakers?
What are the three states of matter?
Who painted the Mona Lisa?
How many sides does a hexagon have?
What currency is used in Japan?
Which organ pumps blood through the body?
What is the smallest prime number?
When did the Second World War end?
How many minutes are in a day?
What is the main ingredient of guacamole?
Which river flows through London?
What do you call a baby kangaroo?
How many players are on a soccer team?
What is the hardest natural material?
Which metal is liquid at room temperature?
What does the abbreviation CPU stand for?
Who was the first person to walk on the Moon?
What is the freezing point of water in Fahrenheit?
Which country has the most people?
How many strings does a violin have?
What is the longest river in Africa?
Which vitamin does the skin make in sunlight?
What are the primary colors?
How many legs does a spider have, and how many does an insect have?
What is the square root of 144?
Which instrument measures air pressure?
In what year did the Berlin Wall fall?
What is the study of living things called?
Which animal is known as the king of the jungle?
What is paper made from?
How many teeth does an adult usually have?
Which planet has the most visible rings?
What is the national flower of Japan?
Who invented the telephone?
What is the opposite of nocturnal?
How many degrees are in a right angle?
What is the largest desert in the world?
Which blood cells fight infection?
What is the name of the galaxy we live in?
What do bees collect from flowers?
Which two countries share the longest border?
What is the main language of Brazil?
How many grams are in a kilogram?
Which part of a plant takes up water?
What is the most common gas in the air we breathe?
Who discovered penicillin?
Which sea lies between Europe and Africa?
What is the plural of the word mouse?
How far away is the Moon, roughly?
What is the name for a shape with five sides?
Which day comes after the day before yesterday?
What is a group of lions called?
Which country gave the Statue of Liberty to the United States?
How many keys does a standard piano have?
""")
FACT_TEMPLATES = lines("""
{q}
{start}{q}
{q}{end}
{q} Then add one interesting detail about it.
{q} Please answer in a complete sentence.
We are having a small argument at dinner. {q}
{q} And how do we know that?
I should know this, but I forgot: {q}
Answer the following question. {q}
Question: {q} Answer:
{q} If you are not sure, say so.
Give the answer first, then explain it in two or three sentences. {q}
I am preparing a pub evening with colleagues and need to check a fact. {q}
""")
FACT_THING_TEMPLATES = lines("""
What should everyone know about {t}?
Tell me {k} facts about {t}.{end}
When did people first learn about {t}?
{start}What is the most surprising thing about {t}?
Give me some basic information about {t}.
Where can I see or find {t}?
What is known about {t}, and what is still unclear?
Is it true that {t} {is} important? Say why or why not.
Write down {ks} interesting facts about {t} {form}.
What is a common mistake people make when they talk about {t}?
Which famous people or places are connected with {t}?
What are the most important words to know when reading about {t}?
Give a short overview of {t} for {who}.
How {has} {t} changed over the last hundred years?
""")

# ---------------------------------------------------------------------------------------------------------------------
# How and why.

WHY_QUESTIONS = lines("""
Why is the sky blue?
Why do leaves change color in autumn?
How do fish breathe under water?
Why does ice float?
How does a thermometer work?
Why do we yawn?
How do airplanes stay in the air?
Why does bread rise?
Why do cats purr?
How does soap remove grease?
Why is sea water salty?
How do magnets pick up nails?
Why do we have leap years?
How does a zipper work?
Why do onions make us cry?
How are mountains formed?
Why do some countries drive on the left?
How does a seed know which way is up?
Why do stars twinkle?
How do noise-cancelling headphones work?
Why do people shake hands?
How does a bank make money?
Why do prices go up over time?
How do bees find their way home?
Why does metal feel colder than wood?
How does a camera focus?
Why do we get goosebumps?
How do scientists know how old a rock is?
Why do languages change?
How does a dishwasher clean plates?
Why does a ball bounce?
How do trees survive the winter?
Why do some people become left-handed?
How does GPS find my position?
Why do we need to sleep?
How is glass made?
Why do companies advertise?
How does yeast work?
Why do ships not sink even though steel is heavy?
How do birds know when to migrate?
Why does popcorn pop?
How do vaccines protect people?
Why is it colder on top of a mountain?
How does a pencil eraser work?
Why do phones get warm when charging?
How do elevators know where to stop?
Why do we forget things?
How is paper recycled?
Why does the Moon seem to change its shape?
How do musicians keep in time together?
Why are some roads made with curves?
How does a vacuum flask keep tea hot?
Why do apples turn brown after cutting?
How do courts decide who is telling the truth?
Why do dogs wag their tails?
How does a website get to my screen?
""")
WHY_TEMPLATES = lines("""
{q}
{start}{q}
{q}{end}
{q} Explain it step by step.
{q} Give the short version first and then the details.
I read two different answers to this. {q} Which explanation is right?
{q} A comparison with something from daily life would help.
Could you explain this to {who}? {q}
My teacher could not answer this in class: {q}
{q} I would like to understand the main cause, not every detail.
In no more than four sentences: {q}
{q} What would happen if it were not so?
""")
EXPLAIN_TEMPLATES = lines("""
Explain how {t} work{s}.
How {does} {t} work?{end}
Why {is} {t} important?
{start}Can you explain {t} to {who}?
I keep hearing about {t}, but I never understood what {it} actually {does}. Please explain.
Describe {t} {form}.
What causes changes in {t}, and why does it matter?
Explain the basic idea behind {t} and give a practical example.
Suppose I know nothing about {t}. Where should my understanding begin?
What would the world look like without {t}?
Use an analogy to explain {t}.
Explain {t} twice: once in one sentence, and once in a full paragraph.
How do experts study {t}?
What role {does} {t} play in everyday life?
""")

# ---------------------------------------------------------------------------------------------------------------------
# Instructions, lists, advice (by activity and topic).

STEPS_TEMPLATES = lines("""
How do I {a}?
Give me step-by-step instructions to {a}.
{start}What is the best way to {a}?{end}
I have never tried to {a} before. What do I do first, second, and third?
Write a short guide to {ing} for {who}.
Explain how to {a} in {k} steps.
I need to {a} today and I only have twenty minutes. How should I go about it?
List the tools and materials needed to {a}, then describe the steps.
What mistakes should I avoid when {ing}?
Write instructions for {ing} {form}.
Can you walk me through {ing}? Start from the very beginning.
How would an expert {a}?
My neighbour asked me how to {a}. What should I say?
Create a checklist for {ing}.
What do I need to know before I {a}?
""")
LIST_TEMPLATES = lines("""
List {k} things to know about {t}.
Give me a list of {k} words related to {t}.
Name {k} examples connected with {t}.{end}
What are the main types or parts of {t}? Answer as a bullet list.
Make a numbered list of reasons why {t} matter{s}.
Write {k} questions a student could ask about {t}.
List the advantages of knowing more about {t}.
I am making a poster about {t}. Give me {k} short points to put on it.
Give {ks} common myths about {t} and correct each one.
List {k} jobs that have something to do with {t}.
Bullet points only: what do people like and dislike about {t}?
What are {k} good titles for an article on {t}?
Put together a short glossary of {k} terms about {t}.
Name {ks} problems connected with {t}, each with one possible solution.
""")
ADVICE_SUBJECTS = lines("""
My roommate never washes the dishes
I feel nervous before every presentation
I want to change careers but I am afraid to start over
My best friend has stopped answering my messages
I keep putting off my homework until the last evening
My neighbour plays loud music at night
I moved to a new city and do not know anyone
I spend too much money on takeaway food
My child does not want to go to bed
I was offered two jobs and cannot decide
I forgot a colleague's birthday and she seems hurt
My dog barks whenever I leave the house
I find it hard to concentrate when working from home
I would like to read more but never find the time
My manager gives me more work than I can finish
I want to learn a language without taking a course
I said something rude to my brother and regret it
My houseplants keep dying
I have trouble waking up early
I was not chosen for the school team
My parents want me to study law, but I prefer music
I get bored when I exercise
I lent a friend some money and he has not paid it back
I am going to be a manager for the first time
My phone distracts me all day
I have to speak to a large audience next week
My teenage son barely talks to me
I want to eat healthier on a small budget
I feel lonely on weekends
A customer left an unfair review of my shop
I made a mistake at work and nobody has noticed yet
I would like to adopt a cat but I travel often
My apartment is too small for all my things
I want to save money for a house
I cannot remember people's names
I argue with my sister whenever we meet
I have an exam in five days and have not started to study
My team does not speak up in meetings
I am thinking about selling my car and using a bicycle
I want to start a small business from home
My grandmother finds her new phone confusing
I often feel tired in the afternoon
I received a gift that I do not like
I would like to ask for fewer working hours
My handwriting is very hard to read
I am new in the office and eat lunch alone
I lost interest in my old hobby
My internet connection is slow and I work online
""")
ADVICE_TEMPLATES = lines("""
{p}. What should I do?
{p}. Do you have any advice?{end}
I need some advice. {p}.
{p}. Give me {k} practical tips.
{p}. What would you say to a friend in the same situation?
{p}. What is the first small step I could take today?
Here is my problem: {p}. Please be honest with me.
{p}. How can I solve this without hurting anyone?
Give me advice in a {tone} tone. {p}.
{p}. Is this normal, and how do other people deal with it?
{p}. I have already tried being patient, but it did not help. What else can I try?
{p}. Suggest two different approaches and tell me which one you prefer.
Could you help me think this through? {p}.
{p}. What should I avoid doing?
""")

# ---------------------------------------------------------------------------------------------------------------------
# Comparisons, pros and cons, definitions.

PAIRS = lines("""
coffee | tea
cats | dogs
a laptop | a tablet
renting a home | buying a home
a city | a village
electric cars | gasoline cars
paper books | e-books
weather | climate
a virus | a bacterium
a lake | a pond
butter | margarine
Python | JavaScript
a list | a tuple in Python
RAM | a hard disk
a democracy | a monarchy
a debit card | a credit card
summer | winter holidays
frogs | toads
the Moon | the Earth
speed | velocity
mass | weight
a simile | a metaphor
running | swimming
trains | airplanes
a novel | a short story
alligators | crocodiles
HTML | CSS
jam | jelly
saving | investing
a manager | a leader
wood | plastic
an email | a phone call
comets | asteroids
baking | frying
gas stoves | electric stoves
a violin | a cello
team sports | individual sports
a noun | a verb
a while loop | a for loop
arteries | veins
a stack | a queue
white rice | brown rice
online classes | classroom lessons
a compiler | an interpreter
hurricanes | tornadoes
fruit | vegetables
oil paint | watercolor
full-time work | freelance work
the Arctic | Antarctica
solar power | wind power
a goal | a dream
cash | cards
a museum | a gallery
fear | anxiety
moths | butterflies
a proverb | a joke
""")
COMPARE_TEMPLATES = lines("""
What is the difference between {x} and {y}?
Compare {x} and {y}.{end}
Which is better, {x} or {y}, and why?
{start}How similar or different are {x} and {y}?
Compare {x} with {y} {form}.
Name {ks} similarities and {ks} differences between {x} and {y}.
People often confuse {x} and {y}. How can I tell which is which?
When would you choose {x} over {y}?
I have to explain {x} versus {y} to {who}. What should I say?
In two sentences, contrast {x} and {y}.
Imagine a table with two columns, one for {x} and one for {y}. Fill in four rows.
Do {x} and {y} have anything in common?
Write a balanced paragraph comparing {x} and {y}, and finish with your own choice.
""")

PROS_SUBJECTS = lines("""
working from home
school uniforms
living in a big city
owning a car
learning online
a four-day work week
keeping a pet
being self-employed
social media
nuclear energy
homework for young children
traveling alone
eating only vegetables
public transport free of charge
buying second-hand clothes
robots in factories
zoos
reading on a screen
paying with a phone
having many siblings
moving abroad
shopping online
a gap year after school
open-plan offices
fast food
video games
growing your own food
longer school days
electric scooters
living with roommates
self-driving cars
mass tourism
daily team meetings
hiring family members
buying in bulk
being famous
night shifts
group projects
using a paper calendar
a minimum wage
closing city centers to cars
learning two languages at once
space exploration
standing desks
early retirement
plastic packaging
subscriptions instead of buying
a strict daily routine
""")
PROS_TEMPLATES = lines("""
What are the pros and cons of {p}?
Give me {ks} arguments for and {ks} arguments against {p}.
{start}Is {p} a good idea?{end}
List the advantages and disadvantages of {p} {form}.
I have to debate {p} in class tomorrow. Prepare arguments for both sides.
Convince me that {p} would be good, then convince me of the opposite.
What are the hidden costs of {p}?
Who benefits most from {p}, and who does not?
Write a short, balanced text about {p}.
My partner is in favor of {p}, and I am not sure. Help us discuss it fairly.
What is the strongest argument against {p}?
Rate {p} from 1 to 10 and justify your rating with pros and cons.
Summarize the debate about {p} for {who}.
""")

TERMS = items("""
democracy; metaphor; inertia; budget; algorithm; empathy; ecosystem; nostalgia; hypothesis; variable; mortgage;
biodiversity; irony; osmosis; entrepreneur; symmetry; tolerance; bandwidth; habitat; revenue; gratitude; molecule;
archive; bureaucracy; compromise; density; firewall; genre; heritage; integrity; justice; kinetic energy; latitude;
monopoly; negotiation; orbit; paradox; quorum; resilience; satire; telescope; utopia; vocabulary; warranty; xylophone;
yeast; zoology; adjective; bankruptcy; calorie; debug; erosion; fable; glossary; humidity; invoice; jargon; keyword;
ledger; mammal; neutron; optimism; pollination; quota; rhythm; stamina; thesis; update; vaccine; watershed; cache;
deadline; diplomacy; folklore; harmony; insulation; lever; nutrient; perspective; prototype; sustainability; equator;
sarcasm; dividend; antibody; chlorophyll; precedent; melody; catalyst; refugee; pixel; placebo
""")
DEFINE_TEMPLATES = lines("""
What does the word "{w}" mean?
Define {w}.
Define "{w}" and use it in a sentence.
{start}What is meant by "{w}"?{end}
Give a dictionary-style definition of "{w}".
Explain the meaning of "{w}" to {who}.
I saw the word "{w}" in a newspaper. What does it mean?
Give {ks} example sentences with the word "{w}".
What is a synonym for "{w}", and is there an opposite?
In one sentence, what is the meaning of the term "{w}"?
Where does the word "{w}" come from, and what does it mean today?
How would you describe "{w}" without using difficult words?
Give two definitions of "{w}": a simple one and an exact one.
Is "{w}" a noun, a verb, or an adjective? Define it as well.
""")

# ---------------------------------------------------------------------------------------------------------------------
# Code.

PYTHON_TASKS = lines("""
reverses a string
checks whether a number is prime
returns the factorial of n
counts the vowels in a text
finds the largest number in a list
removes duplicates from a list and keeps the order
computes the nth Fibonacci number
checks whether a word is a palindrome
converts Celsius to Fahrenheit
merges two sorted lists
counts how often each word occurs in a string
returns the sum of the digits of an integer
finds the second largest value in a list
flattens a nested list
sorts a list of dictionaries by a given key
checks whether two strings are anagrams
returns the greatest common divisor of two numbers
computes the average of a list of numbers
reads a text file and returns the number of lines
writes a list of names to a file, one per line
removes all punctuation from a string
capitalizes the first letter of each word
swaps the keys and values of a dictionary
finds the longest word in a sentence
generates a random password of a given length
checks whether a year is a leap year
converts a decimal number to binary
converts a Roman numeral to an integer
implements binary search
implements bubble sort
prints a multiplication table
draws a triangle of stars with n rows
returns all even numbers from a list
splits a list into chunks of size n
transposes a matrix
multiplies two matrices
validates an email address with a simple rule
counts the days between two dates
formats seconds as hours, minutes and seconds
returns the median of a list
finds the most common element in a list
rotates a list by k places
checks whether brackets in a string are balanced
implements a stack with push and pop
implements a queue using a list
reads a CSV file and prints each row
parses a JSON string and returns one field
computes compound interest
calculates the area of a circle
returns the intersection of two lists
finds all pairs in a list that add up to a target
plays rock, paper, scissors against the user
asks the user to guess a number between 1 and 100
encodes a message with a Caesar cipher
returns the first n prime numbers
replaces every space with an underscore
counts the uppercase letters in a string
checks whether a list is sorted
simulates rolling two dice
builds a dictionary from two lists
returns the last n lines of a file
renames all files in a folder to lower case
measures how long a function takes to run
retries a function three times when it fails
defines a class for a bank account with deposit and withdraw methods
defines a class Rectangle with methods for area and perimeter
defines a dataclass for a book with title, author and year
adds a node to a linked list
computes the depth of a binary tree
does a breadth-first search on a graph
converts a list of strings to integers and skips invalid ones
yields the squares of the numbers from 1 to n
computes the distance between two points
rounds a price to two decimals and adds a currency sign
returns the common prefix of a list of words
compresses a string by counting repeated characters
prints the numbers from 1 to 100 with Fizz and Buzz
finds the missing number in a list from 1 to n
groups words by their first letter
removes empty strings from a list
checks the strength of a password
converts a string to a list of characters
shuffles a deck of cards and deals five of them
returns the difference between the largest and smallest value
keeps a simple to-do list in memory
downloads a web page and prints its title
counts down from ten with a pause of one second
caches the results of a slow function
sums the values of a dictionary
""")
PYTHON_TEMPLATES = lines("""
Write a Python function that {task}.
Write a Python program that {task}. Add comments.
I need a short Python function that {task}.{pyend}
How can I write Python code that {task}?
Python: code that {task}, with a small test at the end.
Write a function in Python which {task}. Then explain how it works line by line.
As a beginner I want to write Python code that {task}. Show me the simplest way.
Show two different Python solutions for code that {task}.
Please write clean Python with type hints that {task}.
Write Python code that {task} without using any imported modules.
Give me a one-line or very short Python solution that {task}, and say what its limits are.
My colleague needs a script in Python that {task}. Include an example of how to call it.
Write a Python function that {task} and handles bad input gracefully.
Create a function with a docstring that {task} in Python.
""")
SLOTS["pyend"] = [
    "",
    "",
    " No explanation, only code.",
    " Explain it briefly.",
    " It should handle an empty input.",
    " Use clear variable names.",
    " Please show the output for one example.",
]

CODE_TASKS = lines("""
SQL | a query that selects all customers from Spain
SQL | a query that counts the orders per customer
SQL | a query that finds the five most expensive products
SQL | a query that joins the tables orders and customers on customer_id
SQL | a statement that creates a table for books with title, author and price
SQL | a statement that adds a new employee to the table staff
SQL | a query that returns the average salary per department
SQL | a statement that deletes all rows older than one year
SQL | a query that lists products that were never ordered
SQL | a statement that raises every price by ten percent
SQL | a query that finds duplicate email addresses
SQL | a query that sorts students by grade and then by name
SQL | a query that shows the total sales of each month
Bash | a command that lists the ten largest files in a folder
Bash | a script that renames all .txt files to .md
Bash | a command that counts the lines in all Python files
Bash | a script that makes a backup of a directory with the date in its name
Bash | a loop that prints the numbers from 1 to 10
Bash | a command that finds the word error in a log file
Bash | a script that checks whether a file exists
Bash | a command that deletes empty folders
Bash | a script that asks for a name and prints a greeting
Bash | a command that shows how much disk space is free
Bash | a one-liner that replaces foo with bar in a file
Bash | a script that stops when any command fails
HTML | a simple page with a heading, a paragraph and an image
HTML | a contact form with name, email and message
HTML | a table with three columns and two rows
HTML | a navigation bar with four links
HTML | an ordered list of cooking steps
HTML | a page with a header, a main part and a footer
HTML | a button that links to another page
HTML | a drop-down menu with five countries
CSS | a rule that centers a box on the page
CSS | a style for a blue button that becomes darker on hover
CSS | a layout with three equal columns
CSS | a style that makes images fit the width of a phone
CSS | a dark color theme for a web page
JavaScript | a function that adds two numbers
JavaScript | code that shows an alert when a button is clicked
JavaScript | a function that filters the even numbers in an array
JavaScript | code that fetches JSON from a URL and prints it
JavaScript | a function that formats a date as day, month and year
JavaScript | a countdown timer that updates each second
JavaScript | a function that removes duplicates from an array
JavaScript | code that changes the background color of a page
JavaScript | a class for a shopping cart with add and total methods
JavaScript | a function that checks whether a form field is empty
JavaScript | code that stores a user name in local storage
JavaScript | a function that reverses the words of a sentence
Java | a method that returns the larger of two integers
Java | a class for a car with a speed and an accelerate method
Java | a program that prints the numbers from 1 to 20
C | a program that prints the sum of an array
C | a function that swaps two integers with pointers
C++ | a program that reads numbers until zero is entered
C++ | a function that finds the maximum in a vector
Go | a function that returns the length of the longest string in a slice
Rust | a function that counts the words in a string
regular expressions | a pattern that matches a date such as 2021-04-30
regular expressions | a pattern that matches a phone number with nine digits
YAML | a small configuration file for a web server with a port and a log level
JSON | an example record for a library book
""")
CODE_TEMPLATES = lines("""
{lang}: write {task}.
Write {task} in {lang}.
Can you show me {task}? I am using {lang}.
I need {task}. Language: {lang}. Please explain briefly how it works.
Please write {task} ({lang}), with comments.
I am new to {lang}. How would I write {task}?
Give me {task}, in {lang}, and one variation of it.
Only answer with code. {lang}: {task}.
Show me how to write {task} in {lang}, and mention a common mistake.
For a tutorial about {lang}, I need {task}. Add a sentence of explanation before the code.
What is the shortest way to write {task} using {lang}?
My boss wants {task}. We work with {lang}. Can you write it?
Write {task} in {lang}, then tell me how to test it.
""")

SNIPPETS = [
    s.strip("\n")
    for s in [
        "\nfor i in range(5)\n    print(i)",
        "def add(a, b):\n    a + b\n\nprint(add(2, 3))",
        "numbers = [1, 2, 3]\nprint(numbers[3])",
        'age = input("Age: ")\nif age > 18:\n    print("adult")',
        "total = 0\nfor n in [4, 5, 6]:\n    total = n\nprint(total)",
        "def is_even(n):\n    return n % 2 == 1",
        'name = "Ana"\nprint("Hello " + nam)',
        "count = 10\nwhile count > 0:\n    print(count)",
        'items = ["a", "b", "c"]\nfor item in items:\n    items.remove(item)\nprint(items)',
        "def append_to(x, target=[]):\n    target.append(x)\n    return target",
        'x = 5\nif x = 5:\n    print("five")',
        'prices = {"tea": 2, "milk": 1}\nprint(prices["coffee"])',
        "def average(values):\n    return sum(values) / len(values)\n\nprint(average([]))",
        'text = "hello"\ntext[0] = "H"\nprint(text)',
        'result = "3" + 4\nprint(result)',
        "def fact(n):\n    return n * fact(n - 1)",
        "import maths\nprint(maths.sqrt(16))",
        "for (let i = 0; i <= items.length; i++) {\n  console.log(items[i]);\n}",
        "const total = 0;\nfor (const p of prices) {\n  total += p;\n}",
        'if (user.age = 18) {\n  alert("Welcome");\n}',
        "function double(x) {\n  x * 2;\n}\nconsole.log(double(4));",
        "SELECT name, COUNT(*) FROM orders;",
        "SELECT * FROM users WHERE name = NULL;",
        "SELECT name FORM customers WHERE city = 'Rome';",
        "for f in *.txt\n  echo $f\ndone",
        'if [ $x = 5 ]\n  echo "five"\nfi',
        "<ul>\n  <li>One\n  <li>Two</li>\n<ul>",
        '<a herf="page.html">Next</a>',
        'int a[3] = {1, 2, 3};\nfor (int i = 0; i <= 3; i++) printf("%d", a[i]);',
        'String a = "cat";\nif (a == input) { System.out.println("same"); }',
        'class Dog:\n    def bark():\n        print("Woof")\n\nDog().bark()',
        'f = open("data.txt", "r")\nf.write("new line")',
        'def greet(name):\nprint("Hi", name)',
        "values = [3, 1, 2]\nvalues = values.sort()\nprint(values)",
        "total = 0\ndef add_one():\n    total += 1\nadd_one()",
        'words = "red,green,blue".split()\nprint(len(words))',
        'print("The sum is: " + 3 + 4)',
        "squares = (x * x for x in range(4))\nprint(squares[2])",
        "a = [1, 2]\nb = a\nb.append(3)\nprint(a)  # expected [1, 2]",
        "print(0.1 + 0.2 == 0.3)",
        'try:\n    n = int("ten")\nexcept:\n    pass\nprint(n)',
        "def largest(nums):\n    best = 0\n    for n in nums:\n        if n > best:\n            best = n\n    return best\n\nprint(largest([-5, -2]))\n",
    ]
]
DEBUG_TEMPLATES = [
    "What is wrong with this code?\n\n{code}",
    "Fix the bug in the following snippet:\n\n```\n{code}\n```",
    "This does not do what I expect. Can you find the problem?\n\n{code}",
    "{code}\n\nWhy does this fail?",
    "I get an error or a wrong result when I run this:\n\n```\n{code}\n```\nPlease explain and correct it.",
    "Review this short piece of code and point out the mistake.\n\n{code}",
    "A student handed in this code. Explain the mistake in a kind way.\n\n{code}",
    "Debug this:\n{code}",
    "There is one error in the code below. Show the corrected version only.\n\n```\n{code}\n```",
    "Explain line by line what this code does and where it goes wrong.\n\n{code}",
    "My colleague says this code has a bug, but I cannot see it. Can you?\n\n{code}",
    "{code}\n\nRewrite this so that it works, and tell me how to avoid such mistakes.",
    "Hi, I have been staring at this for an hour. What am I missing?\n\n```\n{code}\n```",
]

# ---------------------------------------------------------------------------------------------------------------------
# Numbers.

PROBLEMS = lines("""
What is {n2} + {n3}?
What is {n3} - {n2}?
What is {n2} times {n1}?
Calculate {n3} + {n3} + {n2}.
What is {pct}% of {n3}?
Divide {n3} by {n1}. Give the quotient and the remainder.
A shop sells {goods} for {price} dollars each. How much do {n1} of them cost?
A train travels {n2} kilometers per hour. How far does it go in {n1} hours?
There are {n2} children in each of {n1} classes. How many children are there in total?
I had {n3} euros and spent {n2} euros on {goods}. How much money is left?
A baker makes {n3} rolls a day. How many rolls is that in {n1} days?
A jacket costs {n3} dollars and is reduced by {pct}%. What is the new price?
A garden is {n2} meters long and {n1} meters wide. What is its area and its perimeter?
A farmer packs {n3} {fruit} into boxes of {n1}. How many full boxes are there?
I read {n2} pages each day. How long do I need for a book of {n3} pages?
A recipe for {n1} people needs {n3} grams of flour. How much is needed for twice as many people?
The bus leaves at {hour} and the ride takes {n2} minutes. When does it arrive?
A worker earns {n2} dollars an hour and works {n1} hours a day for five days. What does she earn?
Three friends share a bill of {price} euros equally. How much does each pay?
A tank holds {n3} liters and loses {n1} liters each hour. How much is left after {n1} hours?
The temperature was {n1} degrees in the morning and rose by {n2} degrees. What is it now?
If {n1} {goods} cost {n2} dollars, how much does one cost?
A class has {n2} students, and {pct}% of them walk to school. About how many walk?
What is the average of {n2}, {n2} and {n2}?
Solve for x: x + {n2} = {n3}.
Solve for x: {n1}x = {n2}.
Round {n3} to the nearest hundred and {n2} to the nearest ten.
I save {n2} dollars each month. How much will I have after {n1} years?
A car uses {n1} liters of fuel for 100 kilometers. How much does it use for {n3} kilometers?
There are {n2} red and {n2} blue balls in a bag. What is the chance of drawing a red one?
A box holds {n1} {fruit}. How many boxes are needed for {n3} {fruit}?
A library has {n4} books and buys {n3} more. How many books does it have now?
One ticket costs {price} dollars. How many tickets can I buy with {n3} dollars?
Write the number {n3} in words.
Convert {n2} kilometers to miles, roughly.
How many minutes are there in {n1} hours and {n2} minutes?
A rope of {n2} meters is cut into pieces of {n1} meters. How many pieces are there, and how much is left over?
In an election, one side got {n4} votes and the other {n4}. Who won, and by how much?
A shop sold {n3} {goods} in {month} and {n2} more the month after. How many were sold in both months?
A cyclist rides {n2} km on {day} and {n1} km the day after. How far is that altogether?
Put these numbers in order from smallest to largest: {n3}, {n2}, {n1}, {n3}, {n2}.
Is {n3} divisible by {n1}?
Count upwards from {n2} in steps of {n1} and write the first six numbers.
I sleep {n1} hours a night. How many hours do I sleep in {n2} nights?
""")
MATH_TEMPLATES = lines("""
{p}
{p}
{p} Show your work.
{p} Only give the final number.
{p} Explain each step.
{start}{p}
Solve this problem: {p}
{p} Check your answer at the end.
My homework says: "{p}" How do I solve it?
Please think carefully before you answer. {p}
{p} Write the calculation as an equation first.
Could you help a pupil with this? {p}
{p} Also tell me which operation is used and why.
""")

# ---------------------------------------------------------------------------------------------------------------------
# Writing: dialogues, letters, stories, descriptions, ideas, plans.

ROLES = lines("""
a customer | a shop assistant
a doctor | a patient
a teacher | a student
a tourist | a local
a landlord | a tenant
a waiter | a guest
an old friend | a street musician
a manager | an employee
a parent | a teenager
a librarian | a visitor
a taxi driver | a passenger
a coach | a young player
a cat | a dog
a robot | its inventor
a mechanic | a car owner
a baker | an early customer
a police officer | a cyclist
the Sun | the Moon
a grandmother | her grandson
a job applicant | an interviewer
a gardener | a neighbour
a pilot | a flight attendant
a scientist | a journalist
a hotel receptionist | a tired traveler
a fisherman | a talking fish
a museum guide | a bored child
a bank clerk | a student
a painter | a critic
a time traveler | a farmer
a roommate | a delivery driver
a king | his cook
a programmer | a computer
""")
ROLE_THEMES = items("""
a lost umbrella; the price of a ticket; a broken promise; the weather; a plan for the weekend; a late delivery; learning
something new; a noisy party; the best way to spend a free day; a mistake in the bill; a missing key; what to cook; the
meaning of success; an unexpected visit; the first day at work; a strange dream; moving to another city; saving energy
""")
SLOTS["theme"] = ROLE_THEMES
DIALOGUE_TEMPLATES = lines("""
Write a dialogue between {x} and {y} about {theme}.
Write a short conversation between {x} and {y}. The subject is {theme}.
{X} and {y} meet by chance and talk about {theme}. Write down what they say.
Create a funny dialogue between {x} and {y} on {theme}.{dend}
I am practicing English. Please write an easy dialogue between {x} and {y} about {theme}.
Imagine {x} and {y} disagree about {theme}. Write their discussion, and let them agree at the end.
Write a phone call between {x} and {y} about {theme}.
Write a scene for a school play with {x} and {y}. It should be about {theme}.
Compose a polite exchange of six lines between {x} and {y} concerning {theme}.
Dialogue, please: {x}, {y}, and the topic of {theme}.{dend}
Write a {genre} dialogue in which {x} asks {y} for help with {theme}.
Write a chat with short messages between {x} and {y}. They are talking about {theme}.
""")
SLOTS["dend"] = ["", "", " Keep it under ten lines.", " End with a surprise.", " Use simple language.", " No narration."]

LETTERS = lines("""
to a landlord about a broken heater
to a friend who moved abroad
to a school, asking about evening courses
to a hotel, asking for a refund
to a colleague, thanking her for her help
to a neighbour about a fence
to an employer, applying for a summer job
to a grandmother for her birthday
to a company about a late parcel
to a teacher, explaining an absence
to a customer, apologizing for a mistake
to the city council about a dangerous crossing
to a team, announcing a new schedule
to a former boss, asking for a reference
to a library about a lost book
to a friend, inviting him to a barbecue
to a bank about a wrong charge
to a supplier, asking for a lower price
to a club, cancelling a membership
to a newspaper about noise in the park
to parents about a school trip
to a cousin who has just passed an exam
to a doctor's office, moving an appointment
to a charity, offering to volunteer
to a future self in ten years
to a manager, asking for a day off
to a company, declining a job offer
to a roommate about the cleaning plan
to an airline about lost luggage
to a writer whose book you liked
to an old classmate after many years
to all staff about a fire drill
to a client with a project update
to a couple who got married
to a friend who is in the hospital
to an insurance company after a small accident
to a restaurant, praising the service
to a professor, asking for more time
to a gym, complaining about broken machines
to a new employee on the first day
to a local business, asking for sponsorship
to a pen pal about a typical day
to a phone company about a bill that is too high
to neighbours about a lost cat
to a volunteer group, thanking them
to an aunt who sent a sweater
to an event organizer, asking for a vegetarian meal
to a tenant about a visit by the electrician
""")
LETTER_TEMPLATES = lines("""
Write a letter {p}.
Write a {tone} email {p}.
Please help me write a short message {p}. The tone should be {tone}.
Draft an email {p}, with a clear subject line.
I need to write {p}. Can you give me a first draft of about 120 words?
Write a formal letter {p}, using proper opening and closing lines.
Write a casual note {p}. Two or three sentences are enough.
How would you start and end an email {p}?
Compose an email {p}. Mention that I will be away until {day}.
English is not my first language. Please write an email {p} that sounds natural.
Write two versions of a message {p}: one formal, one informal.
I have been putting this off: an email {p}. Make it {tone} and not too long.
Write a letter {p}, dated in {month}, with three short paragraphs.
Give me a template for a letter {p}, with gaps to fill in.
""")

HEROES = lines("""
a retired train driver
a girl who collects sounds
a clumsy waiter
a lonely robot
a young fox
a night nurse
a mail carrier
an old clockmaker
a boy who cannot whistle
a tired detective
a ship's cook
a curious crow
a piano tuner
a new teacher
a shy giant
an honest thief
a jealous baker
a beekeeper
a violin student
a forgetful wizard
a taxi driver
a librarian who hates reading
a small cloud
a gardener on Mars
a brave mouse
an apprentice carpenter
a woman who repairs umbrellas
a snail in a race
a bus full of strangers
a dragon afraid of fire
a weather reporter
a boy with two grandfathers
a lost tourist
a chess player
a cat in an office
a mapmaker
""")
STORY_TEMPLATES = lines("""
Write a short story about {p} in {place}.
Tell me a {genre} story about {p} who {twist}.
Write a story in about 150 words. Main character: {p}. Setting: {place}.
Once upon a time there was {p}. Continue the story.
Write the opening paragraph of a novel about {p}.
Write a bedtime story about {p}. It should end happily.
Give me a {genre} short story with {p}, {place}, and a surprising end.
Write a story of exactly five sentences about {p}.
{P} arrives at {place} and {twist}. What happens next?
Invent a fable with a moral about {p}.
Write a story told in the first person by {p}.
Outline a story about {p} who {twist}: beginning, middle, and end.
My children want to hear about {p} tonight. Please make up something {genre}.
Write a {genre} scene set in {place}. Include {p} and the words "{colour}" and "{fruit}".
""")

PRODUCTS = lines("""
a folding bicycle
a ceramic teapot
a wool blanket
a pocket flashlight
a wooden toy train
a pair of hiking boots
a desk lamp with a clock
a reusable water bottle
a set of kitchen knives
a travel backpack
a scented candle
a garden bench
a waterproof notebook
a pair of wireless headphones
a rain jacket for children
a small electric kettle
a handmade leather wallet
a board game about bees
an alarm clock for deep sleepers
a bag of roasted coffee beans
a solar phone charger
a cast-iron pan
a yoga mat
a jar of orange jam
a bird feeder
a guitar for beginners
a fishing village
a rooftop cafe
a mountain hut
a flea market
a train station at dawn
a quiet beach in autumn
a tropical island
an old bookshop
a vineyard
a botanical garden
a city square at noon
a harbor in the fog
a small-town cinema
an ice rink
a grandmother's kitchen
a busy airport
a ruined castle
a snowy forest
a night market
a hot spring
""")
DESCRIBE_TEMPLATES = lines("""
Describe {p}.
Write a description of {p} for a catalog.
Write a short advertisement for {p}.
Describe {p} using all five senses.
In {ks} sentences, describe {p} so that a reader can picture it.
Write a {tone} description of {p}.{end}
Write an online listing for {p}, with a title and a short text.
Describe {p} to someone who has never seen anything like it.
What makes {p} special? Write a paragraph of about 80 words.
Write a review of {p} from a happy visitor or buyer.
Describe {p} without using the word "beautiful".
I want people to be interested in {p}. Write a few lines for social media.
Write a text about {p} in the style of a travel magazine or a shop window.
Give {k} adjectives for {p}, and then use them in a short description.
""")

IDEAS = lines("""
names for a small bakery
gifts for a retired teacher
activities for a rainy afternoon
slogans for a bicycle shop
topics for a school essay
games for a long car ride
ways to reuse glass jars
names for a black cat
themes for an office party
cheap dinners for students
blog posts about gardening
experiments for a science fair
ways to thank a volunteer
apps that would help older people
decorations for a spring table
questions to ask on a first date
ways to save water at home
titles for a mystery novel
warm-up exercises for a choir
uses for an old T-shirt
snacks for a picnic
small acts of kindness
projects for a beginner in programming
ways to make meetings shorter
costumes made from cardboard
hobbies for people who like quiet
team names for a quiz night
fundraisers for a sports club
surprises for a wedding anniversary
ways to learn ten new words a day
outdoor games without a ball
lunch boxes for children
short exercises for office workers
stories set in a single room
improvements for a public park
ways to welcome new students
""")
IDEAS_TEMPLATES = lines("""
Give me {k} ideas: {p}.
Suggest some {p}.
I am looking for {p}. Any suggestions?{end}
Brainstorm {k} {p}.
What are some creative {p}?
List {k} {p}, from ordinary to unusual.
Help! I need {p} by {day}, and I have no ideas left.
Suggest {ks} {p} and say why each is a good choice.
Think of {p} that cost nothing or very little.
Please come up with {p} suitable for {who}.
I already have two boring {p}. Can you offer something fresher?
Which {p} would you recommend, and which would you avoid?
Give me {p} {form}.
""")

PLANS = lines("""
a weekend in {city}
a three-day trip to {city}
a week of vegetarian dinners
a birthday party for a seven-year-old
a lesson about fractions
a picnic for {n1} people
a study schedule for final exams
a training plan for a first 5 km run
a move to a new apartment
a day trip with two small children
a small wedding in a garden
a reading plan for one month
a spring cleaning of the whole house
a company workshop of half a day
a lesson about the water cycle
a dinner for guests who do not eat meat or fish
a budget for a student with {n3} dollars a month
a camping weekend in {month}
a vegetable garden on a balcony
a first week at a new job
a morning routine for someone who hates mornings
a walking tour of {city}
a surprise party on {day}
a month of learning Spanish
a book club evening
a lunch menu for a school canteen
a road trip along the coast
a quiet day without any screens
a charity run in a small town
a science afternoon for children
a job search over six weeks
a home workout for {n1} days
a family reunion with {n2} guests
an introduction to programming in ten lessons
a holiday meal with three courses
a business trip to {city} with one free evening
""")
PLAN_TEMPLATES = lines("""
Plan {p}.
Help me plan {p}.{end}
I want to organize {p}. Where do I begin?
Make a detailed plan for {p} {form}.
Create a timetable for {p}.
What do I need for {p}? Give me a checklist.
Please plan {p}. The budget is about {n3} dollars.
Draft a simple plan for {p}, with room for changes if it rains or someone is ill.
My colleague and I are responsible for {p}. Divide the tasks between us.
Outline {p}: goals, steps, and what could go wrong.
Give me two options for {p}, one cheap and one comfortable.
I only have a little time to prepare {p}. What matters most?
Plan {p} for {who}.
""")

# ---------------------------------------------------------------------------------------------------------------------
# Working with given text.

PARAGRAPHS = [
    p.strip()
    for p in [
        "\nHoneybees live in colonies that can hold tens of thousands of insects.\nEach bee has a job, such as cleaning cells, feeding larvae, or looking for flowers.\nWhen a worker finds a good field, she returns and shows the direction with a dance.\nIn winter, the bees stay close together and eat the honey they stored in summer.",
        "The town library reopened last week after two years of building work.\nIt now has a larger children's room and a quiet floor for students.\nVisitors can borrow tools and board games as well as books.\nThe staff hope that the longer opening hours will bring in more people.",
        "Glaciers are slow rivers of ice that form where more snow falls than melts.\nAs they move, they grind the rock beneath them and carve deep valleys.\nMany glaciers have become shorter over the past century.\nThis affects towns that depend on meltwater in dry months.",
        "Our office will test a new way of working from next month.\nEmployees may choose two days a week to work from home.\nAll teams should agree on one day when everybody is present.\nAfter half a year, the results will be reviewed and the rules may change.",
        "Bread is one of the oldest prepared foods.\nEarly bakers mixed ground grain with water and cooked it on hot stones.\nLater, people found that dough left in the open began to rise.\nToday bakers use yeast or sourdough to get the same effect.",
        "The printing press made it possible to copy books quickly and cheaply.\nBefore that, each page had to be written by hand.\nAs books became less expensive, more people learned to read.\nNew ideas could travel across a continent within months.",
        "Sleep is not simply a pause in the day.\nWhile we rest, the brain sorts memories and the body repairs itself.\nAdults who sleep too little tend to make more mistakes and fall ill more often.\nA regular bedtime and a dark room can make a clear difference.",
        "The river flooded the lower part of the village on Tuesday night.\nFirefighters helped eleven families leave their homes.\nNo one was injured, but several cellars are still full of water.\nThe school gym is being used as a shelter until the weekend.",
        "Electric bicycles have become popular with commuters.\nA small motor helps the rider on hills and against the wind.\nMost batteries last for about sixty kilometers.\nCritics point out that the bicycles are heavy and rather expensive.",
        "Tea is made from the leaves of a single kind of plant.\nGreen tea is heated soon after picking, while black tea is left to oxidize.\nThe taste also depends on the soil, the height, and the weather.\nIn many countries, offering tea to a guest is a sign of welcome.",
        "Volunteers planted four hundred young trees along the old railway line.\nThe trees will give shade to walkers and a home to birds.\nA local company paid for the plants and the tools.\nThe group plans to water them every week during the first summer.",
        "Compound interest means that interest is paid on earlier interest as well.\nIn the first years, the effect is hard to see.\nAfter decades, however, it can make savings grow to several times their size.\nThe same effect makes unpaid debts dangerous.",
        "The museum's new exhibition shows everyday objects from a hundred years ago.\nThere are irons heated with coal, wooden skis, and a telephone without a dial.\nVisitors may touch some of the objects.\nMany older guests say that it reminds them of their grandparents' homes.",
        "Octopuses have eight arms and three hearts.\nThey can change the color of their skin within a second.\nIn experiments, they have opened jars and found their way through mazes.\nMost of them live for only one or two years.",
        "A good presentation starts with one clear message.\nSlides should support the speaker and not repeat every word.\nIt helps to practice aloud and to keep an eye on the time.\nQuestions at the end are a chance and not a threat.",
        "The Romans built roads that connected all parts of their empire.\nThe roads were made of several layers and were slightly curved so that rain ran off.\nSoldiers, traders, and messengers used them every day.\nSome of the routes are still followed by modern highways.",
        "My brother bought an old sailing boat last spring.\nHe spent every weekend sanding, painting, and repairing the mast.\nIn August, we finally took it out on the lake.\nThe wind died after ten minutes, and we had to row home.",
        "Passwords protect our accounts, but many people choose very weak ones.\nA long phrase of several words is harder to guess than a short word with a number.\nIt is risky to use the same password on many sites.\nA password manager can remember them all.",
        "The city has closed its main street to cars on Sundays.\nFamilies now use the space for skating, games, and music.\nSome shop owners feared losing customers at first.\nRecent figures show that sales have in fact gone up slightly.",
        "Chocolate begins as the bitter seed of a tropical fruit.\nThe seeds are fermented, dried, roasted, and ground.\nSugar and milk were added only a few centuries ago.\nMost cocoa is grown by small farms in West Africa.",
        "Regular walking is one of the simplest forms of exercise.\nIt needs no equipment and can be done at any age.\nHalf an hour a day is good for the heart and for the mood.\nWalking with a friend makes it easier to keep the habit.",
        "The company's sales rose by eight percent this year.\nMost of the growth came from online orders.\nCosts for shipping and energy rose as well, so profit stayed almost the same.\nThe directors expect a calmer year ahead.",
        "Lightning is a giant spark between a cloud and the ground, or between clouds.\nIt heats the air so strongly that the air expands with a bang.\nWe see the flash at once, but the thunder takes time to reach us.\nCounting the seconds tells us how far away the storm is.",
        "The new student found the first week difficult.\nShe did not know the building and was late for two lessons.\nOn Thursday, a classmate showed her around and introduced her to others.\nBy Friday she had joined the chess club.",
        "Recycling glass saves energy and raw materials.\nOld bottles are sorted by color, crushed, and melted.\nGlass can be recycled again and again without losing quality.\nCaps and ceramics have to be removed because they spoil the melt.",
        "The orchestra will give a free concert in the park on Saturday evening.\nThe program includes film music and two dances.\nGuests are asked to bring a blanket or a folding chair.\nIf it rains, the concert will move to the town hall.",
        "Early computers filled whole rooms and used a great deal of power.\nThey were programmed with switches, cables, and punched cards.\nThe invention of the transistor made machines smaller and more reliable.\nA modern phone is faster than all the early computers together.",
        "Coral reefs cover only a tiny part of the sea floor.\nYet about a quarter of all sea animals depend on them.\nWarm water makes the corals lose their color and sometimes die.\nSome researchers are growing new corals in tanks to plant them later.",
        "The restaurant on the corner changed its menu in March.\nIt now serves only six dishes, all made from local food.\nGuests like the taste, although some miss the old soups.\nTables should be booked at least three days in advance.",
        "Soccer clubs in the region are looking for referees.\nMany have given up because of rude parents and players.\nThe league now offers free training and a small payment.\nIt has also introduced clear rules for behavior at the side of the field.",
        "Learning an instrument takes patience, especially in the first months.\nShort daily practice works better than one long session a week.\nPlaying with others keeps up the motivation.\nEven adults who begin late can reach a good level.",
        "The lighthouse on the island has been automatic since the seventies.\nBefore that, a keeper and his family lived there all year.\nThey grew vegetables between the rocks and kept two goats.\nToday the house is rented to tourists in summer.",
        "Wolves live in packs that are usually made up of parents and their young.\nThey hunt together and share what they catch.\nHowling helps them find each other over long distances.\nIn some regions they have returned after being absent for over a century.",
        "A small leak in a tap can waste thousands of liters a year.\nIn most cases, only a worn rubber ring has to be replaced.\nThe job takes a quarter of an hour and costs very little.\nRemember to turn off the water first.\n",
    ]
]
SUMMARY_TEMPLATES = [
    "Summarize this text in one sentence: {par}",
    "{par}\n\nSummarize the paragraph above.",
    "Please give me a summary of the following.\n\n{par}",
    "What is this text about? {par}",
    "Write a headline for this short text:\n\n{par}",
    "Summarize in ten words or fewer: {par}",
    "TL;DR of this, please:\n\n{par}",
    "Turn the following paragraph into two bullet points.\n\n{par}",
    "I have no time to read this. What is the key point?\n\n{par}",
    "Text: {par}\n\nSummary:",
    "Shorten this paragraph to about half its length: {par}",
    "Summarize the text below for {who}.\n\n{par}",
    "{par}\n\nWhat are the two most important pieces of information here?",
    "A friend sent me this. Put it in your own words, briefly: {par}",
]
READING_TEMPLATES = [
    "Read the text and answer: what is the main idea? {par}",
    "{par}\n\nWrite three questions about this text, and answer them.",
    "Give this paragraph a title and explain your choice.\n\n{par}",
    "{par}\n\nWhat could the next sentence be?",
    "According to the text, what happens and why does it matter?\n\n{par}",
    "{par}\n\nWho might have written this, and for which readers?",
    "Find the most important sentence in this text and explain why it is important: {par}",
    "{par}\n\nIs this text mainly informative, persuasive, or entertaining?",
    "Which facts does the following text give? List them.\n\n{par}",
    "Here is a short passage. {par} Explain the last sentence in other words.",
    "{par}\n\nContinue this text with two more sentences in the same style.",
    "Explain any difficult words in this passage:\n\n{par}",
    "Using only the information in this text, write one true and one false statement.\n\n{par}",
    "{par}\n\nWhat does the text not tell us that you would like to know?",
]

SENTENCES = lines("""
The meeting was cancelled because the manager was ill.
I can't come tonight since I have too much work to do.
Due to the heavy rain, the match had to be moved to Sunday.
We regret to inform you that your order will be delayed.
Your report was late and full of mistakes.
The old house at the end of the street is finally being sold.
She opened the door slowly and looked into the dark room.
If you don't pay by Friday, we will close your account.
The food was okay, but the service took forever.
He said that he had never seen such a big dog before.
It is not impossible that we will find a solution.
The team worked hard and finished the project on time.
Nobody told me that the shop closes at five.
In my opinion, the film was far too long.
The company has decided to reduce the number of its employees.
Give me the documents by tomorrow.
There are a lot of people who do not like to fly.
The results of the study were published in the spring.
I want a refund for this broken toaster.
You should have called me before you came.
The children were playing in the garden when it began to snow.
At this point in time, we are not able to offer a discount.
The bus was late again, so I missed my first class.
Many people believe that breakfast is the most important meal.
The teacher explained the rule twice, but half the class did not understand.
My computer is very slow and I hate it.
We would be very pleased if you could join us for dinner.
The mayor opened the new bridge in front of a large crowd.
It was raining cats and dogs all afternoon.
The soup needs more salt.
He is always late, and it drives everyone crazy.
The new law will make it easier for families to find housing.
I guess the plan could work, but I'm not really sure.
The cat knocked the vase off the table and ran away.
Please do not hesitate to contact us in case of any questions.
The museum is closed on Mondays except in July.
Although the hotel was expensive, the room was tiny.
We made a big profit because lots of customers came back.
The storm destroyed the roof of the barn.
Your idea is bad and will never work.
She has been learning Italian for three years and speaks it quite well.
The price of bread has doubled within ten years.
Stop talking during the lesson.
The scientist discovered the effect by accident.
I am writing to you in order to ask whether the position is still available.
The road was blocked by a fallen tree for most of the day.
They bought a car which was old and which was rusty and which did not start.
This phone is the best phone I have ever had.
The train arrived ten minutes early for the first time in years.
The instructions were hard to follow, so we built the shelf wrong.
It has come to our attention that the kitchen is often left dirty.
The forest was silent, and the snow covered every branch.
I don't think we should spend more money on this.
The doctor told him to drink less coffee and to take more walks.
Everyone who wants to take part must sign up by noon.
Our neighbours are nice, but their dog barks all night.
The book begins slowly and becomes exciting only near the end.
You can't park here.
The city planted trees in order to make the streets cooler in summer.
We lost the game, but we learned a lot.
The package was left outside in the rain, and everything is wet.
A new bakery has opened next to the post office.
The workers demanded higher wages and shorter hours.
The sun disappeared behind the hills, and the lake turned dark.
Perhaps it would be possible for you to lower your voice a little.
The engine makes a strange noise when I drive uphill.
""")
REWRITE_TEMPLATES = lines("""
Rewrite this sentence so that it is {style}: {sent}
Paraphrase: "{sent}"
Say this in other words. {sent}
Make the following sentence {style}: "{sent}"
How could I say "{sent}" in a {tone} way?
Rewrite in the passive or active voice, whichever it is not now: {sent}
Give me {ks} different ways to say this: {sent}
Change this sentence into a question: {sent}
Please improve the style of this sentence. "{sent}"
Turn this into a sentence about the future: {sent}
Expand this sentence with more detail: {sent}
Write the opposite of this sentence: {sent}
I wrote "{sent}" in an email. Can you make it {style}?
Rewrite the sentence below as if a {job} were speaking.\\n\\n{sent}
Split or join as needed, and keep the meaning, but make it {style}: {sent}
""")

MISTAKES = lines("""
She go to school every day by bus.
I have went to the market yesterday.
Their is a problem with you're account.
Me and him was late for the meeting.
The informations are not very usefull.
He don't like to eat vegetable.
We was very suprised by the result.
Its a beautifull day, isnt it?
I am agree with you're opinion.
The childs are playing in the gardan.
She can sings very good.
Yesterday I buy a new shoes.
There house is more bigger than ours.
I look forward to hear from you.
He has less friends then his sister.
If I would have time, I will help you.
The dog wagged it's tail and runned away.
Everyone have to bring there own lunch.
I didn't knew that you was here.
This is the most easiest question of the test.
She explained me the problem very clear.
We need to discuss about the new plan
The weather is to cold for swim.
I am living here since five years.
Could you borrow me your pen please.
One of my friend live in Canada.
He is married with a doctor.
who's book is this on the table
I have much homeworks to do tonight.
The man which called you is my boss.
She said me that she was tired.
Between you and I, the food were awful.
I could of won the race.
He speaks english very fluent.
The team are loosing every games.
Please except my apologies for the delay.
My brother he works in a bank.
How much peoples came to the party?
I want that you help me.
The affect of the medicine were strong.
Lets eat grandma!
After he ate dinner he brush his tooth.
""")
PROOF_TEMPLATES = lines("""
Correct this sentence: {sent}
Are there any mistakes in this sentence? "{sent}"
Fix the grammar and spelling: {sent}
Please proofread the following and explain each correction. {sent}
Is this correct English? {sent}
{sent} -- What is wrong here?
My student wrote: "{sent}" How would you correct it?
Correct the sentence and give the rule behind it: "{sent}"
Rewrite without mistakes. {sent}
I am learning English and wrote this: {sent} Is it right?
Point out the errors in "{sent}", and then write a correct version.
How many mistakes are in this sentence? {sent}
Proofread, please, and only give the corrected text: {sent}
Someone put this on a sign at work: "{sent}" What should it say?
""")

CLASSIFY = lines("""
positive or negative | The room was clean, and the staff remembered our names.
positive or negative | I waited an hour for a cold pizza.
positive or negative | The battery died after two days, and nobody answered my emails.
positive or negative | Best birthday present I have ever bought for my son.
positive or negative | The plot was thin, and I left before the end.
positive or negative | Delivery was fast, and everything fits perfectly.
positive or negative | I would not go back even if it were free.
positive or negative | The teacher is patient and explains things well.
positive or negative | The chairs broke within a week.
positive or negative | What a lovely little cafe, and the cake is a dream!
positive, negative, or neutral | The store opens at nine and closes at six.
positive, negative, or neutral | It does what it should, but it is nothing special.
positive, negative, or neutral | The screen is bright, but the sound is terrible.
positive, negative, or neutral | The parcel contained two books and an invoice.
positive, negative, or neutral | We laughed from the first minute to the last.
positive, negative, or neutral | The guide spoke so quietly that we understood nothing.
sports, politics, science, or business | The parliament voted on the new housing law after a long debate.
sports, politics, science, or business | The striker scored twice in the final minutes.
sports, politics, science, or business | Researchers found water ice in a deep crater.
sports, politics, science, or business | The carmaker plans to build a battery plant in the north.
sports, politics, science, or business | The marathon was won in pouring rain.
sports, politics, science, or business | Shares of the airline fell after the strike.
sports, politics, science, or business | A new kind of frog was discovered near the river.
spam or not spam | You have won a free cruise! Click here to claim it now!
spam or not spam | Can we move our meeting to Thursday at ten?
spam or not spam | Lose ten kilos in three days with this secret powder.
spam or not spam | Your library books are due next Monday.
spam or not spam | Dear friend, I need your bank details to send you a fortune.
spam or not spam | Here are the photos from the hike, as promised.
urgent or not urgent | Water is coming through the ceiling of the server room.
urgent or not urgent | The coffee machine should be cleaned some time this month.
urgent or not urgent | A customer cannot log in and has a deadline in an hour.
urgent or not urgent | Please think about a date for the summer party.
a fact or an opinion | Water is made of hydrogen and oxygen.
a fact or an opinion | Autumn is the nicest season of the year.
a fact or an opinion | The tower is taller than the church.
a fact or an opinion | Cats make better pets than dogs.
formal or informal | Hey, wanna grab some lunch later?
formal or informal | We hereby confirm the receipt of your application.
formal or informal | Sorry, can't make it, something came up!
a question, a request, or a complaint | Could you send me the price list?
a question, a request, or a complaint | The shirt lost its color after one wash.
a question, a request, or a complaint | At what time does the pool open?
happy, sad, angry, or afraid | I heard steps behind me, and my hands began to shake.
happy, sad, angry, or afraid | They read my diary without asking me!
happy, sad, angry, or afraid | Since my dog died, the house feels empty.
happy, sad, angry, or afraid | We hugged and danced when the results came in.
a mammal, a bird, a fish, or an insect | A dolphin that lives in warm seas
a mammal, a bird, a fish, or an insect | A penguin standing on the ice
a mammal, a bird, a fish, or an insect | A grasshopper on a leaf
""")
CLASSIFY_TEMPLATES = [
    'Is the following {labels}? "{text}"',
    "Classify this text as {labels}: {text}",
    "{text}\n\nIs this {labels}? Answer with the label only.",
    "Label the sentence ({labels}).\n\nSentence: {text}\nLabel:",
    "Decide: {labels}? {text} Give a short reason.",
    'Would you call this {labels}? "{text}"',
    "I am sorting messages. Tell me if this one is {labels}: {text}",
    "Choose one: {labels}. Text: {text}",
    "{text} Which of these fits best: {labels}? Explain in one sentence.",
    'Read the text and pick the right category, {labels}. "{text}"',
    "How sure are you that this is {labels}? {text}",
    "Text: {text}\nPossible labels: {labels}\nYour choice and why:",
    "In one word, {labels}: {text}",
]

EXTRACTS = lines("""
the items and their numbers | On {day} I bought {n1} {fruit}, {n1} {goods} and a {colour} umbrella at the market.
the city and the time | The flight to {city} leaves at {hour} on {day} from gate {n2}.
all the colors | She wore a {colour} coat, a {colour} hat and {colour} boots, and carried a {colour} bag.
all the places | We drove from {city} to {city}, stayed there for two nights, and then took the train to {city}.
the prices | The lamp was {price} dollars, the rug was {price} dollars, and the chair was only {price} dollars.
the date and the place | The workshop will take place on {month} {n1} in {city}, in the hall next to the station.
the jobs | My aunt is a {job}, my uncle is a {job}, and my cousin wants to become a {job} or a {job}.
the verbs | The old dog stood up, stretched, drank some water and walked slowly to the door.
the animals | Behind the barn we saw two goats, a donkey, several geese and a fox that quickly disappeared.
the ingredients | For the sauce, mix tomatoes, garlic, a spoon of oil, some basil and a pinch of salt.
the tasks | Please call the {job}, send the invoice by {day}, and order {n2} new {goods}.
all the numbers | In {month} we sold {n3} tickets, {n2} posters and {n1} guided tours for a total of {n4} dollars.
the phone number and the opening hours | Call 555-0{n3} between {hour} and 7 p.m., but not on {day}s.
the complaints | The hotel was pretty, but the shower was cold, the bed creaked, and breakfast ended at {hour}.
the sizes | The box is {n2} cm long, {n2} cm wide and {n1} cm high, and it weighs {n1} kilograms.
the names of the days | The class meets on {day} and {day}, but next week it will be held on {day} instead.
the fruits | In the bowl there were {fruit}, {fruit} and {fruit}, next to a loaf of bread and some cheese.
the deadline and the topic | The essay on rivers has to be handed in by {day}, {month} {n1}, before {hour}.
the adjectives | It was a cold and windy evening, and the narrow {colour} street was almost empty.
the order number and the product | My order {n3}-{n2} for {n1} {goods} has still not arrived in {city}.
the tools | To fix the shelf you will need a hammer, a level, four screws, a drill and a pencil.
the countries | The group has members from Peru, Norway and Ghana, and a partner in Vietnam joined in {month}.
the sports | In summer we play tennis and swim, and in winter we ski, skate and sometimes play table tennis.
the symptoms | Since {day} he has had a headache, a sore throat and a slight fever, but no cough.
the instruments | The band has two guitars, a trumpet, drums and a very old piano from {city}.
the departure and arrival times | The bus leaves {city} at {hour} and gets to {city} about {n1} hours later.
the people and their roles | The {job} opened the meeting, the {job} took notes, and the {job} asked the questions.
the plants | Along the path grow roses, lavender and ivy, and behind the {colour} fence stands a pear tree.
""")
EXTRACT_TEMPLATES = [
    "Extract {what} from this sentence: {text}",
    "{text}\n\nList {what}.",
    'Find {what} in the following text. "{text}"',
    "Which are {what} in this sentence? {text}",
    "Read the sentence and return {what} as a bullet list.\n\n{text}",
    "Pull out {what}: {text}",
    "Text: {text}\nWanted: {what}\nAnswer:",
    "From the message below, copy {what} and nothing else.\n\n{text}",
    "I need {what} from this note. {text}",
    "Return {what} as JSON. {text}",
    "Make a small table with {what} from the following: {text}",
    "{text} What are {what}? Separate them with commas.",
    "My colleague left this note: {text} Please write down {what} for me.",
]

# ---------------------------------------------------------------------------------------------------------------------
# Children, conversations, small talk, opinions.

CHILD_TEMPLATES = lines("""
Explain {t} to a five-year-old.
How would you explain {t} to a child?
My son is six and wants to know about {t}. What can I tell him?
Tell a class of eight-year-olds about {t} in simple words.
Explain {t} as if I were ten years old.{end}
Explain {t} to a child with the help of a toy or an animal.
Use only short, easy sentences to tell me about {t}.
A little girl asks: "What {is} {t}?" Answer her.
Make {t} sound exciting for children, in four or five sentences.
What game or small activity could teach children about {t}?
Write a page of a picture book about {t}.
My niece is confused by {t}. Explain {them} gently.
Explain {t} to a young child, and then ask the child one question.
How can a grandfather talk about {t} with a seven-year-old?
""")

CHAT_THING_OPENERS = lines("""
Tell me about {t}.
What do you know about {t}?
Explain {t} briefly.
Give me three facts about {t}.
Write a short paragraph about {t}.
I want to learn more about {t}. Where should I start?
Why do people care about {t}?
I have to give a talk about {t} next week.
Write a short introduction to {t} for a school newspaper.
What is the first thing that comes to mind when you think of {t}?
""")
CHAT_ACTIVITY_OPENERS = lines("""
How do I {a}?
I want to {a}. Any tips?
Is it hard to {a}?
What do I need in order to {a}?
Give me a short guide to {ing}.
I tried to {a} yesterday, and it went badly.
Tell me the three most important rules for {ing}.
I am thinking about {ing} this weekend.
""")
FOLLOW_UPS = lines("""
Can you make it shorter?
Give an example.
Why is that?
Can you explain that more simply?
Thanks! Now write it as a bullet list.
What is the most important point?
I don't understand the last part. Can you explain it again?
Could you add a bit more detail?
Are you sure about that?
What happens next?
How would you explain this to a child?
Rewrite that in a more formal tone.
Now give me the opposite view.
What are the risks?
Is there a cheaper or easier way?
How long does it usually take?
Can you turn that into three questions I could ask a friend?
What should I do first?
Interesting. Tell me something surprising about it.
Ok, and what is a common mistake?
Put that into one sentence.
Which part of this is the hardest?
Can you give me a title for that?
What would you recommend for a beginner?
Please translate the main idea into everyday language.
How do you know?
Does this depend on where I live?
Summarize what you just said.
Give me two more.
That is too long for me. Just the essentials, please.
What if that doesn't work?
How has this changed over time?
Can you say it in a funnier way?
Who could I ask for help with this?
And what about in winter?
Great, that helps. Anything else I should know?
Write a short message to a friend about it.
""")
SLOTS["follow"] = FOLLOW_UPS

SMALL_TALK = lines("""
music | Do you like music? What should I listen to while {sing}?
mornings | Good morning! I just woke up, and it is {weather} outside.
weekend | Any ideas for my weekend? It will be {weather}.
boredom | I'm bored. Talk to me about {stopic}.
weather | It has been {weather} all week here. How do you deal with that?
jokes | Tell me a joke about {stopic}.
name | Hi there, what can you do? I could use some help with {stopic}.
mood | I feel {mood} today.
day | I had a {mood2} day at work. Ask me about it.
holidays | I am back from a holiday in {city}. Guess what I liked best!
food | I can't decide what to eat tonight. I have {fruit}, some rice and cheese.
coffee | What do you think about drinking coffee while {sing}?
films | Recommend a kind of movie for when I feel {mood}.
pets | My cat is sitting on my keyboard while I am {sing}. Say something to her.
birthday | It's my birthday on {day}! I feel {mood}.
fun fact | Tell me something interesting about {stopic} that I can use at a party.
compliment | Say something nice to someone who feels {mood}.
seasons | Do you prefer {month} or {month}? I like the time when it is {weather}.
dreams | Last night I dreamed about {stopic}. Isn't that strange?
goodbye | I have to go now, because I am {sing}. Talk to you later!
opinion | What is your opinion on {stopic}?
game | Let's play a word game about {stopic}. You start.
travel | If you could travel to {city} or {city}, which would you choose?
favorite | What is your favorite thing about {stopic}?
colors | My favorite color is {colour}. What does that say about me?
hello | Hello! How are you today? I feel {mood}.
train | I am on the train to {city} and have an hour to kill. Entertain me with {stopic}.
sleep | I can't sleep. Can you tell me something calm about {stopic}?
friend | My friend and I are arguing about {stopic}. Whose side are you on?
evening | What a {mood2} evening. I am {sing} and it is {weather}.
motivation | I feel {mood} and I still have to do my taxes. Motivate me.
lunch | Lunch break! Give me a thought about {stopic} to chew on.
""")
SLOTS["stopic"] = items("""
rain; elevators; breakfast; old photographs; penguins; robots; Mondays; the sea; shoes; libraries; trains; cheese;
snow; neighbors; space; gardens; bicycles; pencils; sandwiches; lighthouses; clouds; chess; dinosaurs; soup; mountains
""")
SLOTS["weather"] = ["sunny", "raining", "very cold", "foggy", "windy", "far too hot", "snowing", "grey and quiet"]
SLOTS["mood"] = [
    "tired",
    "happy",
    "a bit sad",
    "nervous",
    "bored",
    "full of energy",
    "grumpy",
    "proud",
    "confused",
    "thankful",
    "lonely",
    "excited",
]
SLOTS["mood2"] = ["long", "great", "terrible", "strange", "quiet", "stressful", "wonderful", "boring"]
SLOTS["sing"] = [
    "cooking",
    "cleaning the kitchen",
    "studying",
    "walking home",
    "waiting for the bus",
    "ironing shirts",
    "working late",
    "packing a suitcase",
    "painting a wall",
    "watering my plants",
]
SMALL_TALK_TEMPLATES = lines("""
{p}
{p}
{p}
{p} :)
{p} Be honest.
Hey! {p}
Hi, it's me again. {p}
{p} Just a short answer, I'm on my phone.
So, {day} again. {p}
{p} And then tell me one thing about yourself.
Nothing serious today. {p}
{p} Answer in a {tone} tone.
I only have a minute before dinner. {p}
{p} || Haha, really? {follow2}
{p} || {follow2}
""")
SLOTS["follow2"] = [
    "And what do you think?",
    "Tell me more.",
    "Why do you say that?",
    "Me too!",
    "Thanks, that was nice.",
    "I don't agree.",
    "What else?",
    "You are funny.",
    "OK, next topic.",
    "Do you have another one?",
    "What would you do?",
    "That reminds me of my childhood.",
]

OPINION_TEMPLATES = lines("""
Write a short opinion piece about {t}.
Do you think people spend too much time thinking about {t}? Argue your case.
Write a paragraph that persuades readers to care more about {t}.
Write a letter-to-the-editor style comment about {t} in a {tone} tone.
What would a person who loves {t} say? And a person who doesn't?
Write an essay introduction on the subject of {t}.
Write a two-minute speech about {t} for {who}.
What might {t} look like in fifty years?
Should schools teach more about {t}? Give your view in one paragraph.
Write a blog post of about 150 words on {t}, with a catchy first line.
Complete this sentence and explain it: "The best thing about {t} is ..."
Write a short news report with {t} as its subject.
Write {ks} social media posts about {t}, each with a different mood.
Write a thesis statement about {t} and three supporting points.
""")

# ---------------------------------------------------------------------------------------------------------------------
# Kinds that are kept out of training.

POEM_TEMPLATES = lines("""
Write a poem about {t}.
Write a haiku about {t}.
Compose a rhyming poem of eight lines on {t}.
Write a limerick about {t}.
Please write a {genre} poem about {t} for {who}.
Write four lines of verse about {t}, without rhyme.
Write a song with a chorus about {t}.
Write an acrostic or a short poem about {t}.
A poem, please: {t}, seen through the eyes of a {job}.
Write a poem about {t} that starts with the words "Last night".
Compose a lullaby that mentions {t}.
Write a sonnet or something close to one about {t}.
""")
QUIZ_TEMPLATES = lines("""
Make a multiple choice quiz with {ks} questions about {t}.
Write one multiple choice question on {t}, with four options, and mark the right one.
Quiz me on {t}. Ask one question with answers A, B, C and D.
Create a short true-or-false quiz about {t}.
I am a teacher. Write {k} quiz questions about {t} with an answer key.
Prepare an easy, a medium and a hard quiz question on {t}, each with three options.
Make a quiz about {t} for {who}.
Write a pub quiz round on {t}.
Test my knowledge of {t} with a multiple choice question, and wait for my answer.
Give me a quiz question about {t} in which all the wrong answers sound plausible.
Write a fill-in-the-blank exercise with {ks} sentences about {t}.
Design a quiz card on {t}: question on the front, answer on the back.
""")
TRANSLATE_TEMPLATES = lines("""
Translate into Spanish: {sent}
Translate into French: {sent}
How do you say "{sent}" in Spanish?
How would a French speaker say this? {sent}
What is the Spanish translation of this sentence, word by word? {sent}
Translate this into simple French for a beginner: "{sent}"
Please translate: {sent} (English to Spanish)
Give both a Spanish and a French version of this sentence. {sent}
I need this in German, please: {sent}
Translate to Italian and explain one of the words: {sent}
My pen pal speaks only Spanish. Please translate for me: {sent}
French translation, formal style: {sent}
""")
INTERVIEW_JOBS = items("""
a nurse; a bus driver; a software developer; a chef; a kindergarten teacher; a sales assistant; an accountant; a
firefighter; a graphic designer; a hotel manager; an electrician; a journalist; a lab technician; a farm worker; a
project manager; a museum guide; a data analyst; a hairdresser; a translator; a swimming coach; a warehouse worker
""")
INTERVIEW_TEMPLATES = lines("""
Write {k} interview questions for {p}.
What questions would you ask when hiring {p}?
I have a job interview as {p} tomorrow. What might they ask me?
Interview me for a position as {p}. Start with the first question.
Give me a typical interview question for {p} and a strong answer to it.
Write {ks} interview questions for {p} about teamwork and {ks} about stress.
How should {p} answer the question "What is your greatest weakness?"
Prepare a short interview with {p} for a local newspaper, with questions and answers.
Which questions should {p} ask the employer at the end of an interview?
Write a list of difficult interview questions for {p} with many years of experience.
What questions are not suitable in an interview with {p}?
Write interview questions that show whether {p} can solve problems.
""")
RIDDLE_TEMPLATES = lines("""
Write a riddle whose answer is {w}.
Make up a riddle about {w}, and give the answer at the end.
Create an easy riddle for children. The solution is {w}.
Write a riddle in four rhyming lines about {w}.
Give me three clues for {w}, from hard to easy.
Invent a "What am I?" riddle for {w}.
I need a riddle for a treasure hunt. It should lead to {w}.
Write a very short riddle, two sentences at most, with the answer {w}.
Can you think of a tricky riddle about {w}? Do not reveal the answer at once.
Write a riddle in which {w} speaks in the first person.
Tell me a riddle about {w} and explain why it works.
Turn {w} into a riddle for {who}.
""")
RIDDLE_WORDS = items("""
a clock; a shadow; a bridge; an egg; a candle; a mirror; a river; a key; a stamp; the wind; a pencil; a snowman; a
staircase; an echo; a book; a needle; the moon; a sponge; a keyboard; an onion; a map; a towel; a piano; a cloud
""")
MINUTES_SUBJECTS = lines("""
the sports club, which wants to buy new {goods}
a marketing team that has to prepare a fair in {city}
a parents' evening at a primary school
the residents of a house that needs a new roof
a small software team after a failed release
the board of a choir before its tour to {city}
a group planning a street festival in {month}
the staff of a bakery discussing opening hours
a research group that is short of money
volunteers at an animal shelter with {n2} dogs
a city committee on bicycle lanes
the editors of a student newspaper
a hospital ward discussing night shifts
a museum team preparing an exhibition
a shop that has {n3} unsold {goods}
a family deciding on a holiday destination
""")
MINUTES_TEMPLATES = lines("""
Write the minutes of a meeting of {p}.
Write short meeting minutes for {p}. Include date, people present, decisions and tasks.
Draft an agenda and minutes for {p}.
Invent realistic minutes for {p}, with three points on the agenda.
I missed the meeting of {p}. Write minutes as you imagine them.
Write a protocol of {p} {form}.
Minutes, please: {p}. The meeting took place on {day} at {hour}.
Write the action items from a meeting of {p}.
Write the closing part of the minutes for {p}, with the next date and open questions.
Make minutes for {p} in which one proposal is rejected.
Write minutes for {p}, and add a one-line summary at the top.
Write formal minutes for {p}, no longer than 150 words.
""")
RECIPE_SUBJECTS = items("""
lentil soup; banana bread; a tomato salad; vegetable curry; lemon cake; mushroom risotto; potato pancakes; apple
crumble; bean chili; a cheese omelet; fried rice; pumpkin soup; oatmeal cookies; a fish stew; stuffed peppers; rice
pudding; onion tart; a green smoothie; garlic bread; chickpea salad; noodle soup; a fruit salad; chocolate mousse
""")
RECIPE_TEMPLATES = lines("""
Write a recipe for {p}.
Give me a simple recipe for {p} for {n1} people.
Write a recipe for {p} with a list of ingredients and numbered steps.
I would like to cook {p}, but I have no oven. Write a suitable recipe.
Write a quick recipe for {p} that takes less than half an hour.
My guests do not eat sugar. How can I make {p}? Please write the whole recipe.
Write a recipe for {p} in the style of a grandmother.
Recipe for {p}, as cheap as possible.
Write a vegan recipe for {p}.
Write a recipe for {p} that children can follow with a little help.
Give a classic recipe for {p} and one modern variation.
Write a recipe card for {p} with time, portions, ingredients and method.
""")
CHARACTERS = items("""
a pirate captain; a medieval knight; a friendly dragon; a grumpy librarian; a tour guide on Mars; an old sailor; a
talking tree; a strict piano teacher; a detective in a rainy city; a cheerful baker; a Roman soldier; a robot butler; a
ghost in a theater; a weather forecaster; a wise owl; a nervous astronaut; a street vendor; a retired spy; a snow queen
""")
ROLEPLAY_TEMPLATES = lines("""
Pretend you are {p}. Introduce yourself.
You are {p}. I walk in and ask for directions. What do you say?
Act as {p} and tell me about your day.
Play the role of {p}. I am a journalist: what was your greatest adventure?
Speak like {p} and explain why you love your work.
Let's do a role play. You are {p}, and I am a stranger looking for shelter. You begin.
As {p}, give me advice about {theme}.
Stay in character as {p}. What do you think of {theme}?
Imagine being {p}. Write a diary entry for last {day}.
You are {p}. Complain about {theme}.
Answer as {p}: how do you spend a {weather2} evening? || And who keeps you company?
I would like to talk to {p}. Please play that part. || What are you most afraid of?
""")
SLOTS["weather2"] = ["rainy", "stormy", "warm", "cold", "quiet"]


def pair_subjects(rows: list[str]) -> list[Subject]:
    out = []
    for subject in table_subjects(rows, "x", "y"):
        x, y = subject.values["x"], subject.values["y"]
        out.append(Subject(f"{x} / {y}", subject.kept_out, {"x": x, "y": y, "X": upper_first(x)}))
    return out


def hero_subjects() -> list[Subject]:
    rows = table_subjects(HEROES, "p")
    return [Subject(s.topic, s.kept_out, {**s.values, "P": upper_first(s.topic)}) for s in rows]


def verbatim_subjects(texts: list[str], name: str) -> list[Subject]:
    return [Subject(t.splitlines()[0][:60], i % KEEP_OUT_EVERY == 5, {name: t}) for i, t in enumerate(texts)]


def chat_templates(openers: list[str]) -> list[str]:
    return [f"{o} || {{follow}}" for o in openers] + [f"{o} || {{follow}} || {{follow}}" for o in openers]


THINGS_ALL = thing_subjects()
NO_PLACES = thing_subjects(tuple(d for d in THINGS if d != "places"))

# Kinds with two rows use both tables, half of the prompts each.
TRAIN_KINDS = [
    [Kind("fact", table_subjects(FACT_QUESTIONS, "q"), FACT_TEMPLATES), Kind("fact", THINGS_ALL, FACT_THING_TEMPLATES)],
    [
        Kind("explain", table_subjects(WHY_QUESTIONS, "q"), WHY_TEMPLATES),
        Kind("explain", thing_subjects(WORKING), EXPLAIN_TEMPLATES),
    ],
    [Kind("steps", activity_subjects(), STEPS_TEMPLATES)],
    [Kind("list", THINGS_ALL, LIST_TEMPLATES)],
    [Kind("compare", pair_subjects(PAIRS), COMPARE_TEMPLATES)],
    [Kind("define", table_subjects(TERMS, "w"), DEFINE_TEMPLATES)],
    [Kind("python", table_subjects(PYTHON_TASKS, "task"), PYTHON_TEMPLATES, casual=False)],
    [Kind("code", table_subjects(CODE_TASKS, "lang", "task"), CODE_TEMPLATES, casual=False)],
    [Kind("debug", verbatim_subjects(SNIPPETS, "code"), DEBUG_TEMPLATES, casual=False)],
    [Kind("math", table_subjects(PROBLEMS, "p"), MATH_TEMPLATES)],
    [Kind("dialogue", pair_subjects(ROLES), DIALOGUE_TEMPLATES)],
    [Kind("letter", table_subjects(LETTERS, "p"), LETTER_TEMPLATES)],
    [Kind("summary", verbatim_subjects(PARAGRAPHS, "par"), SUMMARY_TEMPLATES, casual=False)],
    [Kind("reading", verbatim_subjects(PARAGRAPHS, "par"), READING_TEMPLATES, casual=False)],
    [Kind("rewrite", table_subjects(SENTENCES, "sent"), REWRITE_TEMPLATES, casual=False)],
    [Kind("proofread", table_subjects(MISTAKES, "sent"), PROOF_TEMPLATES, casual=False)],
    [Kind("advice", table_subjects(ADVICE_SUBJECTS, "p"), ADVICE_TEMPLATES)],
    [Kind("plan", table_subjects(PLANS, "p"), PLAN_TEMPLATES)],
    [Kind("proscons", table_subjects(PROS_SUBJECTS, "p"), PROS_TEMPLATES)],
    [Kind("story", hero_subjects(), STORY_TEMPLATES)],
    [Kind("describe", table_subjects(PRODUCTS, "p"), DESCRIBE_TEMPLATES)],
    [Kind("ideas", table_subjects(IDEAS, "p"), IDEAS_TEMPLATES)],
    [Kind("classify", table_subjects(CLASSIFY, "labels", "text"), CLASSIFY_TEMPLATES, casual=False)],
    [Kind("extract", table_subjects(EXTRACTS, "what", "text"), EXTRACT_TEMPLATES, casual=False)],
    [Kind("child", NO_PLACES, CHILD_TEMPLATES)],
    [Kind("opinion", NO_PLACES, OPINION_TEMPLATES)],
    [
        Kind("chat", THINGS_ALL, chat_templates(CHAT_THING_OPENERS)),
        Kind("chat", activity_subjects(), chat_templates(CHAT_ACTIVITY_OPENERS)),
    ],
    [Kind("smalltalk", table_subjects(SMALL_TALK, "id", "p"), SMALL_TALK_TEMPLATES)],
]
OTHER_KINDS = [
    Kind("poem", THINGS_ALL, POEM_TEMPLATES),
    Kind("quiz", THINGS_ALL, QUIZ_TEMPLATES),
    Kind("translate", table_subjects(SENTENCES, "sent"), TRANSLATE_TEMPLATES, casual=False),
    Kind("interview", table_subjects(INTERVIEW_JOBS, "p"), INTERVIEW_TEMPLATES),
    Kind("riddle", table_subjects(RIDDLE_WORDS, "w"), RIDDLE_TEMPLATES),
    Kind("minutes", table_subjects(MINUTES_SUBJECTS, "p"), MINUTES_TEMPLATES),
    Kind("recipe", table_subjects(RECIPE_SUBJECTS, "p"), RECIPE_TEMPLATES),
    Kind("roleplay", table_subjects(CHARACTERS, "p"), ROLEPLAY_TEMPLATES),
]

# ---------------------------------------------------------------------------------------------------------------------

SLOT = re.compile(r"\{(\w+)\}")


def fill(rng: random.Random, text: str, values: dict[str, str]) -> str:
    """Replace each {slot}; within one text a slot does not repeat a choice while there are others."""
    used: set[str] = set()

    def one(match: re.Match[str]) -> str:
        name = match[1]
        if name in values:
            return values[name]
        source = SLOTS.get(name)
        if source is None:
            return match[0]
        for _ in range(20):
            choice = source(rng) if callable(source) else rng.choice(source)
            if not choice or choice not in used:
                break
        used.add(choice)
        return choice

    return SLOT.sub(one, text)


def some_sentences(rng: random.Random, paragraph: str) -> str:
    """The first sentence of a paragraph and one to three of the others, in order."""
    first, *rest = paragraph.splitlines()
    keep = sorted(rng.sample(range(len(rest)), rng.randint(1, len(rest))))
    return " ".join([first, *(rest[i] for i in keep)])


def make_turns(rng: random.Random, kind: Kind, subject: Subject, template: str) -> tuple[str, ...]:
    values = dict(subject.values)
    if "par" in values:
        values["par"] = some_sentences(rng, values["par"])
    elif "code" not in values:
        values = {name: fill(rng, value, {}) for name, value in values.items()}
    text = fill(rng, template.replace("\\n", "\n"), values)
    turns = [turn.strip() for turn in text.split("||")]
    if kind.casual and rng.random() < 0.05:
        turns = [turn.lower().rstrip(".?!") for turn in turns]
    elif kind.casual:
        turns = [upper_first(turn) for turn in turns]
    return tuple(turns)


def generate(
    rng: random.Random,
    kind: Kind,
    subjects: list[Subject],
    n: int,
    seen: set[tuple[str, ...]],
    banned: re.Pattern[str] | None,
) -> list[tuple[str, tuple[str, ...]]]:
    """n new prompts (topic and turns), walking through subjects and templates in turn."""
    out: list[tuple[str, tuple[str, ...]]] = []
    order: list[Subject] = []
    templates: list[str] = []
    for _ in range(60 * n):
        if len(out) == n:
            break
        order = order or rng.sample(subjects, len(subjects))
        templates = templates or rng.sample(kind.templates, len(kind.templates))
        subject, template = order.pop(), templates.pop()
        turns = make_turns(rng, kind, subject, template)
        if turns in seen or (banned and banned.search(" ".join(turns))):
            continue
        seen.add(turns)
        out.append((subject.topic, turns))
    if len(out) < n:
        raise RuntimeError(f"{kind.name}: only {len(out)} of {n} prompts")
    return out


def shares(total: int, parts: int) -> list[int]:
    return [total // parts + (i < total % parts) for i in range(parts)]


def all_prompts(seed: int = 0) -> list[Prompt]:
    """All prompts, train first, in an order in which every prefix of each split is balanced over the kinds."""
    rng = random.Random(seed)
    seen: set[tuple[str, ...]] = set()
    kept_out = [s.topic for s in THINGS_ALL + activity_subjects() if s.kept_out]
    banned = re.compile(r"\b(" + "|".join(re.escape(t) for t in kept_out) + r")\b", re.IGNORECASE)
    groups: dict[str, list[list[Prompt]]] = {"train": [], "heldout": [], "other": []}

    def add(kinds: list[Kind], split: str, n: int) -> None:
        found = []
        for kind, part in zip(kinds, shares(n, len(kinds)), strict=True):
            subjects = kind.subjects
            if split != "other":
                subjects = [s for s in subjects if s.kept_out == (split == "heldout")]
            found += generate(rng, kind, subjects, part, seen, banned if split == "train" else None)
        rng.shuffle(found)
        name = kinds[0].name
        stem = f"{name}-heldout" if split == "heldout" else name
        group = [Prompt(f"{stem}-{i:04d}", name, topic, split, turns) for i, (topic, turns) in enumerate(found)]
        groups[split].append(group)

    for kinds, n in zip(TRAIN_KINDS, shares(N_TRAIN, len(TRAIN_KINDS)), strict=True):
        add(kinds, "train", n)
    for kinds, n in zip(TRAIN_KINDS, shares(N_HELDOUT, len(TRAIN_KINDS)), strict=True):
        add(kinds, "heldout", n)
    for kind, n in zip(OTHER_KINDS, shares(N_OTHER, len(OTHER_KINDS)), strict=True):
        add([kind], "other", n)

    out: list[Prompt] = []
    for split in groups.values():
        for i in range(max(len(group) for group in split)):
            row = [group[i] for group in split if i < len(group)]
            rng.shuffle(row)
            out += row
    return out


def main() -> None:
    prompts = all_prompts()
    counts = Counter((p.split, p.kind) for p in prompts)
    for (split, kind), n in sorted(counts.items()):
        print(f"{split:8} {kind:10} {n:5}")
    for split, n in Counter(p.split for p in prompts).items():
        print(f"{split:8} {'all':10} {n:5}")
    chars = [sum(map(len, p.turns)) for p in prompts]
    print(f"distinct texts: {len({p.turns for p in prompts})}, mean characters: {sum(chars) / len(chars):.1f}")


if __name__ == "__main__":
    main()
