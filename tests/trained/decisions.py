#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeded closed-choice decisions for the demonstration model: generated screens, goals and options.

usage: decisions.py [--split SPLIT] [--kind KIND] [--seed N] [COUNT]     prints some

A decision is a request of this project and the option that is right. Everything that varies in its
form is a frame: goal sentences, their prefixes and suffixes, the parts that state and option lines
are composed of, phrases of refusal. Each pool of frames holds some back, and so does each set of
words; a fifth of all compositions of seen parts is held back too. Splits:
  seen       seen words in seen frames: what the model is trained on
  words      every name and object is made of words that training never shows
  templates  seen words; the goal's sentence and a part of the state's and of the options' form are held back
  both       words and templates
"""
import argparse
import json
import random
import re
import sys
import zlib
from dataclasses import dataclass, field

SYSTEM = (
    "<|im_start|>system\nYou are a one-pass computer-use decision model. You are shown the current state of a "
    "screen and a fixed, closed list of candidate (element, action) options, each given a single letter. "
    "Choose exactly one option: the single best next action to take. Answer with ONLY that option's letter -- "
    "no words, no punctuation, no explanation.<|im_end|>\n<|im_start|>user\n")
LAYOUT = ("goal app cua driver task family closed candidate decision accessibility tree options select answer with a single letter "
          "box enabled focused unchecked empty disabled at confidence interactive true cursor pointer level active visible value "
          "clickable dialog text message heading website actions already taken hover click none buttons controls elements it has list "
          "title children nodes div node id role")  # the words around what is made up
MARK = "\ue000"  # ends an element of the state while a decision is made; never in a prompt
MODEL = "cua-s1-4b-0.2"  # what a request has to name
SPLITS = {"seen": (False, False), "words": (True, False), "templates": (False, True), "both": (True, True)}
# `position` and `id` are read off the options alone; the -tree kinds need the state first.
KINDS = ("name", "verb", "paraphrase", "affirm", "negate", "abstain",
         "position", "position-tree", "id", "id-tree", "role")
MOST = 26


def held_back(text, one_in=5):
    return zlib.crc32(text.encode()) % one_in == 0


class Frames:
    def __init__(self, seen, held):
        self.seen, self.held = seen.split("\n"), held.split("\n")
        assert not set(self.seen) & set(self.held)

    def pick(self, rng, held):
        return rng.choice(self.held if held else self.seen)


def lines(text):
    return "\n".join(line for line in (raw.strip() for raw in text.strip().split("\n")) if line)


# ---- words -----------------------------------------------------------------------------------------

NOUNS = """account album address agenda alarm answer app archive article audio badge balance banner basket
battery bill blog board body bonus book booking bookmark border box branch brush budget bug bus button cable
calendar call camera campaign card cart case catalog category center chain chair channel chapter chart chat
check city class client clip clock cloud club code coffee color column comment company concert contact
contract cookie copy corner country coupon course cover crew customer dashboard data date day deal delivery
design desk detail device diagram diary diet dinner discount disk display doctor document dog domain door
draft dream drive driver email employee engine entry error event exam example expense export face family
farm fee feed field figure file film filter finger fish flag flight floor flower folder font food form forum
frame friend fruit function game garage garden gate gift glass goal grade graph grid group guest guide
hall hat header health history holiday home horse hospital hotel house icon idea image inbox index
insurance invoice island item job journal journey keyboard kitchen label lake language laptop layer layout
lead lesson letter library license light line link list loan location lock log logo lunch machine magazine
mail map margin market match meal meeting member memo menu message meter mirror mode model money monitor
month mountain mouse movie museum music name network news note notice number office order outline owner
package page painting panel paper parcel parking part partner party pass password patient pattern payment
pencil person phone photo piano picture plan planet plant plate player podcast point policy poll pool post
poster potato prescription price printer product profile program project question queue quiz quote radio rain
rate reader receipt recipe record refund region reminder rent report request reservation result review
reward ring river road robot role room route row rule salary sample scene schedule school score screen script
season seat section sensor series server service session setting shape shelf ship shirt shoe shop shortcut
signal signature site sketch skill slide snow sofa software song sound source speaker speech sport square
stage station statistic status step store story street student style subject summary supplier survey switch
symbol system table tag target task tax teacher team template tent term test text theater theme thread ticket
tile timer title token tool topic tour town toy track traffic train transfer translation tree trip truck
university user vacation vehicle version video village voice volume voucher walk wall wallet watch water weather
website week wheel window wine winter word worker zone""".split()
ADJECTIVES = """active annual basic big blue brown busy central cheap clean clear closed cold common complete cool
current custom daily dark deep direct double dry early easy empty exact external extra fast final fine flat
foreign former fresh full general global golden gray great green happy heavy hidden high hot huge internal joint
large late latest little local long loud low main major medical minor mobile modern monthly narrow national new
next nice normal northern official old open orange ordinary original outer paid personal plain popular private
proper public pure purple quick quiet rare raw recent red regional regular rich rough round royal second senior
shared sharp short silent silver simple single slow small smooth social soft solid southern special square
standard steep strong sweet tall temporary thick thin tiny tough upper urgent usual vast warm weekly western
white whole wide wild yearly yellow young""".split()
INTERFACE = """Save|Cancel|Home|Settings|Help|Back|Next|Previous|Search|Log in|Log out|Sign up|Submit|Close|Apply|
OK|Yes|No|Continue|Edit|Delete|Copy|Paste|Cut|Undo|Redo|Print|Share|Send|Reply|Forward|Open|New|Add|Remove|View|
More|Less|Details|Options|Menu|Profile|Account|Password|Username|Email|Phone|Address|First name|Last name|City|
Date|Time|Price|Total|Checkout|Add to cart|Buy now|Download|Upload|Refresh|Filter|Sort|Show all|Load more|
Accept|Decline|Subscribe|Follow|Like|Comment|Report|Block|Mute|Archive|Inbox|Sent|Drafts|Spam|Trash|Contact us|
About|Terms|Privacy|Language|Theme|Notifications|Security|Billing|Start|Stop|Pause|Play|Record|Volume|Zoom in|
Zoom out|Full screen|Bold|Italic|Insert|Format|Tools|Window|File|Select all|Find|Replace|Exit|Minimize|Restore|
Preview|Publish|Reset|Retry|Skip|Finish|Confirm|Import|Export|Sync|Connect|Disconnect|Pin|Star|Move|Rename|
Agree|Remember me|I agree|Forgot password|Add to wishlist|Track order|Get started|Learn more|Read more|
Book a table|Check in|Check out|Sort by price|Price low to high|Highest rated|One way|Round trip|Increment|
Decrement|Terms of use|Show password|Add note|New folder|New tab|History|Bookmarks|Clear|Update|Install""".replace(
    "\n", "").split("|")
ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p pl pr qu r s sh sk sl sm sn sp st str t th tr v w z".split()
NUCLEI = "a e i o u a e i o u a e i o ai ea ee oa oo ou".split()
CODAS = "b ck d f g k l ll m n nd ng nk nt p r rd rk rm rn rt s sh sk st t th x".split() + [""] * 12


def pseudo_word(rng):
    syllables = rng.choices((1, 2, 3), (2, 7, 1))[0]
    word = "".join(rng.choice(ONSETS) + rng.choice(NUCLEI) + (rng.choice(CODAS) if i == syllables - 1 or
                                                              rng.random() < 0.4 else "") for i in range(syllables))
    return word if len(word) > 3 else word + rng.choice(("nel", "ron", "mit", "sal", "dum"))


class Words:
    """Nouns and adjectives of one side of the vocabulary split."""

    def __init__(self, held):
        self.held = held
        self.nouns = [w for w in NOUNS if (held_back(w) and w not in FIXED) == held]
        self.adjectives = [w for w in ADJECTIVES if (held_back(w) and w not in FIXED) == held and w not in NOUNS]

    def pseudo(self, rng):
        while True:
            word = pseudo_word(rng)
            if held_back(word) == self.held and word not in REAL:
                return word

    def noun(self, rng):
        return rng.choice(self.nouns) if rng.random() < 0.72 else self.pseudo(rng)

    def adjective(self, rng):
        return rng.choice(self.adjectives) if rng.random() < 0.8 else self.pseudo(rng)

    def phrase(self, rng):
        """One to three words, in lower case."""
        form = rng.random()
        if form < 0.35:
            return self.noun(rng)
        if form < 0.65:
            return self.adjective(rng) + " " + self.noun(rng)
        if form < 0.93:
            return self.noun(rng) + " " + self.noun(rng)
        return self.adjective(rng) + " " + self.noun(rng) + " " + self.noun(rng)


# Verbs that mean the same, for paraphrases; a word is in one group only.
SYNONYMS = [group.split(", ") for group in lines("""
    delete, remove, erase, trash, get rid of
    save, store, keep a copy of
    open, launch, bring up
    close, shut, exit
    edit, change, modify, alter
    copy, duplicate, clone
    send, submit, dispatch, transmit
    find, search for, look for, locate, look up
    download, fetch, pull down
    upload, push up
    print, put on paper, make a printout of
    rename, retitle, give a new name to
    share, pass on, hand around
    move, relocate, shift
    undo, revert, take back, roll back
    refresh, reload
    buy, purchase, pay for
    book, reserve
    play, listen to
    pause, halt, suspend
    hide, conceal
    show, display, reveal
    enable, turn on, switch on
    disable, turn off, switch off, deactivate
    protect, secure
    release, unlock
    install, set up
    archive, file away, put away
    create, make, build
    add, insert, append
    compare, contrast
    merge, combine, join
    split, divide, break up
    check, verify, validate
    approve, accept
    reject, turn down
    schedule, arrange
    cancel, call off
    discard, throw away
    mute, silence
    answer, reply to
    translate, interpret""").split("\n")]
# What a dialog may ask about; after such an act the thing is gone or not as it was.
DESTRUCTIVE = "delete remove erase discard overwrite replace reset format trash cancel clear close".split()
OTHER_ACTS = "send submit publish install restart share move rename upload download buy book archive print update export merge".split()
IRREGULAR = {
    "choose": ("chosen", "choosing"), "hit": ("hit", "hitting"), "tap": ("tapped", "tapping"), "send": ("sent", "sending"),
    "submit": ("submitted", "submitting"), "overwrite": ("overwritten", "overwriting"), "reset": ("reset", "resetting"),
    "format": ("formatted", "formatting"), "buy": ("bought", "buying"), "cancel": ("canceled", "canceling"),
    "take": ("taken", "taking"), "pick": ("picked", "picking")}


def participle(verb):
    if verb in IRREGULAR:
        return IRREGULAR[verb][0]
    return verb + "d" if verb.endswith("e") else verb + "ed"


def gerund(verb):
    if verb in IRREGULAR:
        return IRREGULAR[verb][1]
    return verb[:-1] + "ing" if verb.endswith("e") else verb + "ing"


GENERIC = "click press tap choose select pick activate push hit trigger use open".split()
NEUTRAL = GENERIC[:-2]  # beside labels that say themselves what they do
ROLES = ("button link checkbox textbox menuitem tab radio slider switch option combobox searchbox listitem image icon "
         "toggle row cell").split()
SPOKEN = {"textbox": "text field", "menuitem": "menu item", "radio": "radio button", "combobox": "combo box",
          "searchbox": "search field", "listitem": "list item"}

# ---- goals -----------------------------------------------------------------------------------------
# {v} {ved} {ving} a verb and its forms, {L} a label, {r} a role, {s} a synonym, {o} an object, {P} a made-up name,
# {A} what is not wanted, {B} what is, {N} an ordinal, {c} a cardinal, {I} an element id

BEFORE = Frames(lines("""
    please
    now
    next,
    I want you to
    you should
    you need to
    task:
    your task is to
    the user asks you to
    could you
    can you
    we need to
    it is time to
    help me:
    first,
    then
    try to
    I would like you to
    let us
    kindly
    step 2:
    todo:
    instruction:
    so,
    ok,
    my goal is to
    as {P} asked,
    {P} says:
    for {P}:
    in {P},"""), lines("""
    would you
    finally,
    the plan is to
    request:
    you have to
    it would be good to
    {P} wants you to"""))
BEFORE_STATEMENT = Frames(lines("""
    task:
    please:
    note:
    now:
    {P} says:
    the goal:
    today
    ok,
    well,
    the user says:
    hello,
    instruction:
    in short:
    from {P}:"""), lines("""
    request:
    my wish:
    listen:
    {P} writes:"""))
AFTER = Frames(lines("""
     now
     please
     for me
     in this window
     on this screen
    , thanks
     and nothing else
     and then stop
     right away
     as the next step
     in the {P} window
     so that {P} can go on
     before lunch
     today
     (see {P})
     here
     in the app
     for {P}
     again
     if it is there
     with one action
     to go on""").replace("\n", "\n ").replace("\n ,", "\n,"), lines("""
     straight away
     on this page
    , if you can
     at once
     for my friend {P}""").replace("\n", "\n ").replace("\n ,", "\n,"))
AFTER.seen[0], AFTER.held[0] = " now", " straight away"

NAME = Frames(lines("""
    {v} {L}
    {v} {L}
    {v} the {r} {L}
    {v} the {L} {r}
    {v} on {L}
    {v} the {r} labeled {L}
    {v} the {r} called {L}
    {v} the {r} named {L}
    {v} the one that says {L}
    find {L} and {v} it
    look for the {r} {L}, then {v} it
    {v} the control {L}
    {v} {L} in the list
    {v} what is marked {L}
    go to {L} and {v} it
    {v} the entry {L}
    {v} the {r} with the text {L}
    get to {L} and {v} that
    {v} {L} on the screen
    {v} only {L}"""), lines("""
    {v} the item titled {L}
    {v} whichever {r} reads {L}
    see where {L} is and {v} it
    {v} the thing called {L}
    {v} exactly {L}"""))
NAME_STATEMENT = Frames(lines("""
    {L}
    {L} is what I want
    the {r} {L} should be {ved}
    {L} must be {ved}
    I want {L}
    the next thing to {v} is {L}
    I need {L} {ved}
    {v}: {L}
    {L} -> {v}
    it is {L} that you {v}
    we are looking for {L}, {v} it
    {L} is the one to {v}
    {ving} {L} is the next step"""), lines("""
    what I need is {L}
    the right {r} is {L}
    {L} has to be {ved}
    my choice is {L}
    the {r} to {v} is {L}"""))
PARAPHRASE = Frames(lines("""
    {s} the {o}
    {s} the {o}
    {s} {o}
    {s} my {o}
    {s} this {o}
    {s} that {o}
    {s} our {o}
    {s} the {o} shown here
    {s} the {o} that I see
    {s} only the {o}
    go and {s} the {o}
    find a way to {s} the {o}
    {s} {P}'s {o}
    {s} the {o} on the screen"""), lines("""
    {s} the whole {o}
    {s} just the {o}
    {s} your {o}
    {s} the {o} called {P}
    go on and {s} this {o}"""))
PARAPHRASE_STATEMENT = Frames(lines("""
    I want to {s} the {o}
    the {o}: {s} it
    I need to {s} my {o}
    the next thing is to {s} the {o}
    my {o}, I want to {s} it
    it is best to {s} the {o}
    {o}: {s}
    we must {s} the {o}
    the user wants to {s} the {o}
    somebody has to {s} the {o} now"""), lines("""
    what I need is to {s} the {o}
    the thing to do is to {s} the {o}
    I would like to {s} this {o}
    it is my wish to {s} the {o}"""))
CONTRAST = Frames(lines("""
    {v} {B}, not {A}
    not {A}: {v} {B}
    do not {v} {A}; {v} {B}
    don't {v} {A}, {v} {B}
    {v} {B} instead of {A}
    instead of {A}, {v} {B}
    skip {A} and {v} {B}
    leave {A} alone and {v} {B}
    avoid {A}, {v} {B}
    {v} {B} and never {A}
    {v} {B} rather than {A}
    rather than {A}, {v} {B}
    ignore {A}; {v} {B}
    {B}, not {A}
    no, not {A}, I mean {B}
    never {v} {A}, use {B}
    {A} is wrong, {v} {B}
    {v} {B} without touching {A}
    I do not want {A} but {B}
    the right one is {B} and not {A}"""), lines("""
    {v} {B} but do not {v} {A}
    never {A}; {v} {B}
    {A} is not what I want, {v} {B}
    {v} not {A} but {B}
    we don't need {A}, we need {B}
    {v} {B} and leave {A} alone
    {v} {B}; avoid {A}"""))
AFFIRM = Frames(lines("""
    {v} the {o}
    {v} the {o}
    yes, {v} the {o}
    go ahead and {v} the {o}
    confirm that the {o} should be {ved}
    proceed
    agree to {v} the {o}
    the {o} can be {ved}
    accept
    say yes
    I am sure: {v} the {o}
    continue with this
    I really want to {v} the {o}
    confirm
    yes
    yes, do it
    the {o} should be {ved} now
    go on with {ving} the {o}
    I agree to {ving} the {o}
    the {o} must be {ved}
    answer yes
    it is fine to {v} the {o}
    {v} it
    let the {o} be {ved}
    start {ving} the {o}
    {v} my {o}
    I want the {o} {ved}"""), lines("""
    yes, I want to {v} the {o}
    you may {v} the {o}
    confirm {ving} the {o}
    it is right to {v} the {o}
    please do {v} this {o}
    the {o} has to be {ved}
    say yes to {ving} the {o}"""))
NEGATE = Frames(lines("""
    do not {v} the {o}
    don't {v} the {o}
    do not {v} the {o}
    never {v} the {o}
    say no
    decline to {v} the {o}
    refuse to {v} the {o}
    the {o} must not be {ved}
    avoid {ving} the {o}
    leave the {o} alone
    the {o} should not be {ved}
    I do not want to {v} the {o}
    I don't want the {o} {ved}
    no, do not {v} it
    go back without {ving} the {o}
    leave this without {ving} the {o}
    I changed my mind, do not {v} the {o}
    stop, the {o} must not be {ved}
    there is no reason to {v} the {o}
    answer no
    no
    leave the {o} as it is
    nobody should {v} the {o}
    the {o} is not to be {ved}
    stop before you {v} the {o}
    I never asked to {v} the {o}
    not now: the {o} should not be {ved}
    it is wrong to {v} the {o}"""), lines("""
    please don't {v} my {o}
    make sure that the {o} is not {ved}
    no, never {v} the {o}
    you must not {v} the {o}
    do not let anybody {v} the {o}
    I would not {v} this {o}
    say no to {ving} the {o}"""))
KEEP = Frames(lines("""
    keep the {o}
    the {o} must stay
    keep my {o}
    I want to keep the {o}
    preserve the {o}
    the {o} should stay as it is
    keep the {o} and go back
    I still need the {o}
    we want the {o} to stay
    I need the {o} later, keep it"""), lines("""
    keep this {o}
    I would like to keep my {o}
    the {o} has to stay
    please preserve my {o}"""))
POSITION = Frames(lines("""
    {v} the {N} {t}
    {v} the {N} {t} in the list
    {v} {t} number {c}
    {v} the {N} {t} from the top
    {v} the {N} one
    go to the {N} {t}
    take the {N} {t}
    {v} the {t} in position {c}
    {v} {t} {c}
    count to the {N} {t} and {v} it"""), lines("""
    {v} the {N} {t} of this list
    {v} the {t} with number {c}
    find the {N} {t} and {v} it
    {v} the {N} of these"""))
BY_ID = Frames(lines("""
    {v} {I}
    {v} {I}
    {v} the element {I}
    {v} the element with id {I}
    {v} the {r} with id {I}
    {v} element {I}
    use id {I}
    {v} the control whose id is {I}
    find {I} and {v} it
    {v} id {I}
    go to {I}
    {v} ref {I}
    {I} should be {ved}
    the id is {I}"""), lines("""
    {v} the item with the id {I}
    {v} the thing that has id {I}
    look for {I} and {v} it
    {v} whatever {I} is"""))
BY_ROLE = Frames(lines("""
    {v} the {R}
    {v} the {R}
    use the {R}
    {v} the only {R}
    find the {R} and {v} it
    the {R} should be {ved}
    {v} the {R} on the screen
    go to the {R}
    I want the {R}"""), lines("""
    {v} the one {R}
    {v} whatever {R} there is
    see where the {R} is and {v} it"""))
QUOTES = Frames("{}\n{}\n{}\n\"{}\"\n'{}'\n“{}”\n`{}`\n({})\n[{}]\n<{}>", "«{}»\n*{}*\n‘{}’\n_{}_")

# ---- options ---------------------------------------------------------------------------------------

NO_MATCH = Frames(lines("""
    Stop without acting if no supplied action is safe.
    None of these
    None of the above
    No option fits
    No match
    Nothing fits
    No suitable option
    None of them
    Abstain: no candidate fits
    Skip: no candidate fits
    Stop; no option applies
    There is no matching element
    No candidate matches the goal
    The element is not here
    Select only when no action candidate condition matches.
    none
    not found
    No such element
    Refuse: nothing here matches
    Not on this screen
    Report that nothing matches"""), lines("""
    No action applies here
    Stop, none of the options is suitable
    Nothing here fits the goal
    There is no such option
    No supplied candidate matches"""))
INERT = Frames(lines("""
    Abstain
    abstain
    Do nothing
    Take no action
    Skip
    Give up
    Stop without acting
    Stop here"""), lines("""
    Do not act
    Take no step
    Abstain and stop"""))
AGAIN = Frames(lines("""
    Take no action and obtain a fresh observation.
    Discard this decision set and obtain a fresh observation.
    Look again
    Wait for the screen to settle
    Observe again
    reobserve
    Wait and look again"""), lines("""
    Obtain a fresh observation
    Look at the screen again"""))
SENTENCES = Frames(lines("""
    {V} {L}
    {V} the {r} {L}
    {V} the {L} {r}
    {V} the {r} labeled {L}.
    {V} the {r} labeled {L}
    {V} the {r} called {L}
    {V} {L} now
    {V} on {L}
    {V} the control {L}
    {V} the {r} with the text {L}
    the {r} {L}
    {L}
    {L}
    {L}
    Use {L}
    Submit using {L}
    Select {L} only.
    {v} {L}
    {r} {L}
    {r} that says {L}
    {V} the entry {L} in the list"""), lines("""
    {V} the item {L}
    {V} whichever {r} says {L}
    The {L} {r}, please {v}
    {V} here: {L}
    {V} {L}."""))
JOINTS = Frames("\n".join([" ", " ", ": ", " - ", " -> ", " | ", ", ", " / ", "; ", " => ", "  ", " @ ", "="]),
                "\n".join([" ~ ", " >> ", " .. ", " + "]))
ROLE_FORMS = Frames("{}\n{}\n[{}]\n({})\n<{}>\nrole={}\nAX{C}\n{U}\n{C}\n@{}\nax:{}\n{}:", "/{}/\nkind={}\ntype:{}\n!{}")
LABEL_FORMS = Frames("{}\n{}\n\"{}\"\n\"{}\"\n'{}'\n“{}”\n`{}`\n({})\n[{}]\n<{}>\ntext={}\nname=\"{}\"\nlabel: {}\ntext '{}'",
                     "«{}»\n*{}*\ntitle='{}'\ncaption={}\n|{}|")
ID_FORMS = Frames("{}\n[ref={}]\nid={}\n#{}\n({})\n[{}]\nid=\"{}\"\n<{}>\n{}:", "^{}\nref:{}\nid:{}\n${}")
VERB_FORMS = Frames("{}\n{C}\n{U}\n({})\n{}()\ndo {}\naction={}\n[{U}]", "<<{}>>\nact:{}\n*{}*")
BULLETS = Frames("\n- \n- \n* \n• \n{i}. \n{i}) \n[{i}] \n> \n  \n+ \n({i}) \n{i}: \n| ", "~ \n#{i} \n-- \n{i} - \n= ")
ENTRY_JOINTS = Frames("NEWLINE\n; \n | \n, \n / \n · ", " // \n ++ ")
HEADERS = Frames(lines("""
    Window: {T}
    Dialog: {T}
    # {T}
    - heading "{T}" [level=1]
    Website: {t}
    App {T} is in front.
    Screen: {T}
    {T}
    == {T} ==
    title={T}
    [window] {T}
    Page "{T}"
    Visual-region-derived observation for capture "{t}":
    Focus: {T}
    AXWindow "{T}"
    <window title="{T}">
    {T} - {T2}
    Current view: {T}
    Elements on the screen:
    Buttons:
    Controls:"""), lines("""
    View: {T}
    *** {T}
    Tree of {T}
    The screen shows:
    (window {T})"""))
NOISE = Frames(lines("""
    text: {T}
    - text: {T}
    Status: {t}
    [static] {T}
    Time 10:42
    Version {d}.{d}
    Page {d} of {d}
    note: {t}
    © {T}
    {d} items
    Signed in as {t}
    progress {d}{d}%
    /url: /{t}
    paragraph: {T} {t} {t2}
    loading done
    Actions already taken:
    (none)
    scroll position {d}
    end of list"""), lines("""
    footer: {T}
    Build {d}{d}
    Last change: {t}
    tip: {T}"""))
GROUPS = Frames("toolbar\nlist\nform\nmenu\nnavigation\ngroup\nmain\ntable\npanel\nsection", "footer\nsidebar\nregion")
QUESTIONS = Frames(lines("""
    {V} the {o}?
    {V} {o}?
    {V} the {o} permanently?
    Do you want to {v} the {o}?
    Are you sure you want to {v} the {o}?
    {O}: {v}?
    This will {v} the {o}. Continue?
    Really {v} the {o}?
    {V} {d} {o}?
    {V} {d} {o} permanently?
    {V} all {o}?
    You are about to {v} the {o}.
    Should the {o} be {ved}?
    The {o} will be {ved}."""), lines("""
    {V} this {o}?
    Do you really want to {v} this {o}?
    The {o} is going to be {ved}. Go on?"""))
YES = "{V}|{V}|{V} {o}|Yes|OK|Confirm|Continue|Proceed|Yes, {v}|{V} anyway|{V} now|Accept|Go ahead|Agree|{V} the {o}|Allow|Sure".split("|")
NO = ("Cancel|Cancel|No|Don't {v}|Go back|Not now|Never mind|Abort|Back|Do not {v}|Deny|Decline|No, go back|Cancel, do not {v}|"
      "Dismiss|Refuse").split("|")
NO_KEEPING = "Keep {o}|No, keep {o}|Keep it|Keep the {o}|Keep".split("|")
SIDE = ("Help|Details|More information|Settings|Learn more|Show log|About|Minimize|Options|Feedback|Preview|Zoom in|Language|Theme|"
        "Contact us|Terms|Privacy|History|Print|Notifications").split("|")
ORDINALS = ("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth").split()
THINGS = "item entry element row option control one line".split()

JSON_KEYS = [("role_class", "label", "state"), ("role", "name", "id"), ("type", "text", "ref"), ("kind", "title", "enabled"),
             ("AXRole", "AXTitle", "AXIdentifier"), ("tag", "caption", "node"), ("class", "value", "key")]
JSON_KEYS_HELD = [("control", "says", "no"), ("widget", "label", "uid")]
OPTION_KEYS = [("action", "target"), ("do", "on"), ("type", "element"), ("verb", "label"), ("op", "name")]
OPTION_KEYS_HELD = [("act", "what"), ("step", "at")]


# Words that stand in some form or fixed label: none of them counts as held back.
FIXED = set(re.findall("[a-z]+", " ".join([
    SYSTEM, LAYOUT, *INTERFACE, *YES, *NO, *NO_KEEPING, *SIDE, *ORDINALS, *THINGS, *GENERIC, *ROLES, *SPOKEN.values(), *DESTRUCTIVE,
    *OTHER_ACTS, *(form(verb) for verb in GENERIC + DESTRUCTIVE + OTHER_ACTS for form in (participle, gerund)),
    *(verb for group in SYNONYMS for verb in group), *(key for keys in JSON_KEYS + OPTION_KEYS for key in keys),
    *(form for frames in list(vars().values()) if isinstance(frames, Frames) for form in frames.seen + frames.held)]).lower()))
REAL = set(NOUNS) | set(ADJECTIVES) | FIXED
WORDS = {held: Words(held) for held in (False, True)}


@dataclass
class Element:
    label: str
    role: str
    id: str


@dataclass
class Decision:
    kind: str
    split: str
    state: object  # a string, an object or a list, without marks
    goal: str
    options: list  # of strings or objects
    answer: int
    frames: tuple  # what it was composed of
    marked: str = field(repr=False, default="")  # the state as text, with a mark behind each element
    target: int = -1  # which element of the state the answer acts on, -1: none

    def request(self):
        criteria = {f"a{i}": option for i, option in enumerate(self.options)}
        return {"model": MODEL, "state": self.state,
                "questions": {"q": {"type": "choice", "instructions": self.goal, "criteria": criteria}}}

    def prompt(self):
        """The prompt, where each option's line ends in it, and where each element of the state does."""
        parts = [SYSTEM, f"Goal: {self.goal}\n\n" if self.goal else "",
                 "App: Cua Driver\nTask family: closed-candidate decision\n\nAccessibility tree:\n"]
        at = sum(map(len, parts))
        elements = []
        pieces = self.marked.split(MARK)
        for piece in pieces[:-1]:
            at += len(piece)
            elements.append(at)
        at += len(pieces[-1])
        parts += pieces
        parts.append("\n\nOptions:\n")
        at += len(parts[-1])
        ends = []
        for letter, option in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", self.options):
            text = option if isinstance(option, str) else json.dumps(option, ensure_ascii=False)
            parts.append(f'{letter}. Decision "{json.dumps(text, ensure_ascii=False)[1:-1]}" -> select\n')
            at += len(parts[-1])
            ends.append(at)
        parts.append("\nAnswer with a single letter.<|im_end|>\n<|im_start|>assistant\n<think>\n")
        return "".join(parts), ends, elements


def case_of(rng):
    return rng.choices(("title", "sentence", "lower", "upper"), (5, 6, 2, 0.6))[0]


def cased(text, case):
    if case == "title":
        return " ".join(w[:1].upper() + w[1:] for w in text.split(" "))
    if case == "sentence":
        return text[:1].upper() + text[1:]
    return text.upper() if case == "upper" else text.lower()


def fill(form, value):
    return (form.replace("{}", value).replace("{C}", value[:1].upper() + value[1:]).replace("{U}", value.upper()))


class Maker:
    """Makes one decision."""

    def __init__(self, rng, kind, split, least, most):
        self.rng, self.kind, self.split = rng, kind, split
        self.new_words, self.new_frames = SPLITS[split]
        self.words = WORDS[self.new_words]
        self.count = max(2, rng.randint(least, most))
        self.used = []
        self.case = case_of(rng)

    # ---- frames
    def frame(self, frames, held=None):
        form = frames.pick(self.rng, self.new_frames if held is None else held)
        self.used.append(form)
        return form

    def maybe_new(self, frames):
        """A part of a composition in the splits of new frames: held back at random."""
        return self.frame(frames, self.new_frames and self.rng.random() < 0.35)

    def chance(self, p):
        return self.rng.random() < p

    # ---- labels
    def label(self):
        form = self.rng.random()
        if form < 0.25 and not self.new_words:
            return self.rng.choice(INTERFACE)
        if form < 0.4:
            verb = self.rng.choice(self.rng.choice(SYNONYMS)[:2])
            return f"{verb} {self.words.noun(self.rng)}"
        if form < 0.45:
            return f"{self.words.noun(self.rng)} {self.rng.randint(1, 40)}"
        return self.words.phrase(self.rng)

    def labels(self, count, near=None):
        """Different labels, none of whose words are all in another. Some share a word with `near`."""
        found, sets = [], []
        if near is not None:
            found.append(near)
            sets.append(set(near.lower().split()))
        while len(found) < count:
            text = self.label()
            if found and self.chance(0.22):
                other = self.rng.choice(found if near is None else [near, self.rng.choice(found)]).split()
                text = self.rng.choice((f"{self.rng.choice(other)} {self.words.noun(self.rng)}",
                                        f"{self.words.adjective(self.rng)} {self.rng.choice(other)}"))
            words = set(text.lower().split())
            if any(words <= other or other <= words for other in sets):
                continue
            found.append(text)
            sets.append(words)
        return found

    def elements(self, labels, role=None):
        rng = self.rng
        if role is None:
            kinds = rng.sample(ROLES, rng.randint(1, 4))
            roles = rng.choices(kinds, [3] + [1] * (len(kinds) - 1), k=len(labels))
        else:
            roles = role
        prefix = rng.choice(("e", "e", "n", "id", "btn-", "ax-", "item_", "x", "node", "", "s1e", "ui.", "w", "el-", "ref_"))
        form = rng.random()
        if form < 0.3:
            first = rng.choice((0, 1, 1, 1, rng.randint(2, 60)))
            numbers = list(range(first, first + len(labels)))
        else:
            numbers = rng.sample(range(1, 100 if form < 0.6 else 1000), len(labels))
        if prefix == "" and form < 0.6:
            prefix = "e"  # a bare small number reads as a position
        return [Element(cased(l, self.case) if l == l.lower() else l, r, f"{prefix}{i}")
                for l, r, i in zip(labels, roles, numbers)]

    # ---- goals
    def sentence(self, core, statement, before=True):
        rng = self.rng
        text = core
        if before and self.chance(0.45):
            frames = BEFORE_STATEMENT if statement else BEFORE
            text = f"{self.maybe_new(frames)} {text}"
        if self.chance(0.35):
            text += self.maybe_new(AFTER)
        while "{P}" in text:
            name = self.words.pseudo(rng)
            text = text.replace("{P}", name if self.chance(0.3) else name.capitalize(), 1)
        if self.chance(0.85):
            text = text[:1].upper() + text[1:]
        if self.chance(0.01):
            text = text.upper()
        return text + rng.choices(("", ".", "!"), (5, 6, 0.5))[0]

    def quoted(self, label):
        if self.chance(0.08):
            label = label.lower()
        return fill(self.maybe_new(QUOTES), label)

    def verb_goal(self, core, verb, **values):
        for key, value in (("{v}", verb), ("{ved}", participle(verb)), ("{ving}", gerund(verb))):
            core = core.replace(key, value)
        for key, value in values.items():
            core = core.replace("{" + key + "}", value)
        return core

    def name_goal(self, label, role, verb):
        statement = self.chance(0.3)
        core = self.frame(NAME_STATEMENT if statement else NAME)
        spoken = SPOKEN.get(role, role) if self.chance(0.7) else role
        return self.sentence(self.verb_goal(core, verb, L=self.quoted(label), r=spoken), statement)

    # ---- the state
    def attribute(self):
        rng = self.rng
        form = self.attributes
        if form == 0:
            return f"[box={rng.randint(0, 99)},{rng.randint(0, 99)},{rng.randint(1, 9)}0,{rng.randint(1, 9)}0]"
        if form == 1:
            return rng.choice(("enabled", "enabled", "enabled", "focused", "unchecked", "empty", "disabled"))
        if form == 2:
            return f"at ({rng.randint(0, 999)},{rng.randint(0, 999)},{rng.randint(1, 9)}0,{rng.randint(1, 9)}0)"
        if form == 3:
            return f"confidence=0.{rng.randint(60, 99)} interactive=true"
        if form == 4:
            return rng.choice(("[cursor=pointer]", "[level=2]", "[active]", "[cursor=pointer]"))
        return rng.choice(("visible=true", "visible=true", "value=''", "clickable"))

    def compose_state(self, elements, texts, need_id, need_role):
        """Lines composed of parts, until the composition is on the right side of the split."""
        rng = self.rng
        while True:
            parts = ["label"]
            if need_role or self.chance(0.72):
                parts.append("role")
            if need_id or self.chance(0.3):
                parts.append("id")
            if self.chance(0.22):
                parts.append("attribute")
            rng.shuffle(parts)
            if self.chance(0.5):  # the usual order
                parts.sort(key="role label id attribute".split().index)
            start = len(self.used)
            bullet, joint = self.maybe_new(BULLETS), self.maybe_new(JOINTS)
            role_form, label_form = self.maybe_new(ROLE_FORMS), self.maybe_new(LABEL_FORMS)
            id_form = self.maybe_new(ID_FORMS)
            inline = self.chance(0.12)
            between = self.maybe_new(ENTRY_JOINTS) if inline else "NEWLINE"
            mine = self.used[start:]
            key = "/".join(parts) + joint + role_form + label_form + id_form
            new = (held_back(key) or bullet in BULLETS.held or joint in JOINTS.held or
                   "role" in parts and role_form in ROLE_FORMS.held or label_form in LABEL_FORMS.held or
                   "id" in parts and id_form in ID_FORMS.held)
            if new == self.new_frames:
                break
            del self.used[start:]
        if between == "NEWLINE":
            between = "\n"
        self.attributes = rng.randrange(6)
        entries = []
        for i, element in enumerate(elements):
            values = {"label": fill(label_form, element.label), "role": fill(role_form, element.role),
                      "id": fill(id_form, element.id)}
            if "attribute" in parts:
                values["attribute"] = self.attribute()
            bulleted = bullet.replace("{i}", str(i + 1)) if between == "\n" or self.chance(0.02) else ""
            entries.append((bulleted, joint.join(values[p] for p in parts) + MARK))
        out = []
        if texts or self.chance(0.75):
            out.append(self.headline())
        for text in texts:
            out.insert(rng.randint(0, len(out)), self.dialog_line(text))
        noise = rng.choices((0, 1, 2, 3), (6, 3, 1.5, 0.7))[0]
        grouped = between == "\n" and self.chance(0.25)
        if between == "\n":
            indent = ""
            body = []
            for bulleted, text in entries:
                if grouped and self.chance(0.3 if body else 0.9):
                    mark = rng.choice(("- ", "", "* ", "+ "))
                    body.append(mark + self.maybe_new(GROUPS) + rng.choice((":", "", " " + self.title())))
                    indent = rng.choice(("  ", "  ", "    ", "\t"))
                body.append(indent + bulleted + text)
        else:
            lead = rng.choice(("", "Buttons: ", "Controls: ", "Elements: ", "It has ", "- list: "))
            body = [lead + between.join(b + t for b, t in entries)]
            if out and self.chance(0.3):  # all in one line
                body = [" ".join(out + body)]
                out = []
        for _ in range(noise):
            body.insert(rng.choice((0, len(body))), self.noise())
        return "\n".join(out + body)

    def title(self):
        return cased(self.words.phrase(self.rng), "title")

    def decorate(self, form):
        rng = self.rng
        for key in ("{T}", "{T2}", "{t}", "{t2}", "{d}"):
            while key in form:
                value = (self.title() if key[1] == "T" else str(rng.randint(0, 9)) if key == "{d}" else
                         self.words.noun(rng))
                form = form.replace(key, value, 1)
        return form

    def headline(self):
        return self.decorate(self.maybe_new(HEADERS))

    def noise(self):
        return self.decorate(self.maybe_new(NOISE))

    def dialog_line(self, text):
        return self.rng.choice(("{}", "{}", "Dialog: {}", "text: {}", "- text: {}", 'heading "{}"', '- heading "{}"', "Message: {}",
                                'dialog "{}"', "[text] {}")).replace("{}", text)

    def json_state(self, elements, texts, need_id):
        rng = self.rng
        keys = rng.choice(JSON_KEYS_HELD if self.new_frames else JSON_KEYS)
        third = (lambda e: e.id) if need_id or self.chance(0.5) else (lambda e: rng.choice(("enabled", "enabled", "focused", "empty")))
        order = [0, 1, 2]
        if self.chance(0.3):
            rng.shuffle(order)
        self.used.append("json " + " ".join(keys[i] for i in order))
        entries = []
        for element in elements:
            values = (element.role, element.label, third(element))
            entry = {keys[i]: values[i] for i in order}
            entry[keys[order[2]]] += MARK
            entries.append(entry)
        if texts or self.chance(0.3):
            return {"title": texts[0] if texts else self.title(), rng.choice(("elements", "children", "nodes")): entries}
        return entries

    def history_state(self):
        """Nothing about the options, as in recorded sessions on the web."""
        rng = self.rng
        name = self.words.noun(rng)
        taken = "\n".join(f"[{rng.choice(ROLES)}]  {cased(self.label(), 'sentence')} -> {rng.choice(('CLICK', 'HOVER'))}"
                          for _ in range(rng.randint(0, 4))) or "(none)"
        self.used.append("history")
        return (f"Website: {name} ({cased(self.words.noun(rng), 'title')} / {cased(self.words.noun(rng), 'title')})\n"
                f"Actions already taken:\n{taken}")

    def html_state(self, elements, texts):
        rng = self.rng
        self.used.append("html")
        tag = rng.choice(("{r}", "div", "node", "AX"))
        rows = [f"<p>{t}</p>" for t in texts] or [f"<h1>{self.title()}</h1>"]
        for e in elements:
            rows.append(f'<{tag.replace("{r}", e.role)} id="{e.id}"' + (f' role="{e.role}"' if tag != "{r}" else "") +
                        f">{e.label}</{tag.replace('{r}', e.role)}>" + MARK)
        return "\n".join(rows)

    def make_state(self, elements, texts=(), need_id=False, need_role=False, listed=True):
        form = self.rng.random()
        if not listed and form < 0.25 and not self.new_frames:
            return self.history_state()
        if form > 0.9:
            return self.json_state(elements, texts, need_id)
        if form > 0.85 and not self.new_frames:
            return self.html_state(elements, texts)
        return self.compose_state(elements, texts, need_id, need_role)

    # ---- options
    def option_style(self, verb, need_id=False, need_role=False):
        """A function from an element to its option's text or object."""
        rng = self.rng
        form = rng.random()
        if form < 0.04 and not need_role:
            keys = rng.choice(OPTION_KEYS_HELD if self.new_frames else OPTION_KEYS)
            self.used.append("option json " + " ".join(keys))
            if need_id:
                return lambda e: {keys[0]: verb, keys[1]: e.label, "id": e.id}
            return lambda e: {keys[0]: verb, keys[1]: e.label}
        if form < 0.5 and not need_id:
            core = self.frame(SENTENCES)
            while need_role and "{r}" not in core:
                self.used.pop()
                core = self.frame(SENTENCES)
            label_form = self.maybe_new(QUOTES)
            return lambda e: (core.replace("{V}", verb.capitalize()).replace("{v}", verb).replace("{r}", e.role)
                              .replace("{L}", fill(label_form, e.label)))
        while True:
            parts = ["label"]
            if self.chance(0.6):
                parts.append("verb")
            if need_role or self.chance(0.55):
                parts.append("role")
            if need_id or self.chance(0.15):
                parts.append("id")
            rng.shuffle(parts)
            if self.chance(0.4):
                parts.sort(key="id role label verb".split().index)
            start = len(self.used)
            joint, role_form = self.maybe_new(JOINTS), self.maybe_new(ROLE_FORMS)
            label_form, id_form, verb_form = self.maybe_new(LABEL_FORMS), self.maybe_new(ID_FORMS), self.maybe_new(VERB_FORMS)
            key = "option" + "/".join(parts) + joint + role_form + label_form + id_form + verb_form
            new = (held_back(key) or joint in JOINTS.held and len(parts) > 1 or label_form in LABEL_FORMS.held or
                   "role" in parts and role_form in ROLE_FORMS.held or "id" in parts and id_form in ID_FORMS.held or
                   "verb" in parts and verb_form in VERB_FORMS.held)
            if new == self.new_frames:
                break
            del self.used[start:]
        bare_id = need_id and self.chance(0.15)  # only the id, no label
        if bare_id:
            parts = [p for p in parts if p != "label"]

        def text(e):
            values = {"label": fill(label_form, e.label), "role": fill(role_form, e.role), "id": fill(id_form, e.id),
                      "verb": fill(verb_form, verb)}
            return joint.join(values[p] for p in parts)
        return text

    def extra(self, frames, style):
        """An option that acts on no element: as a sentence or, at times, in the others' form."""
        text = self.maybe_new(frames)
        if self.chance(0.12):
            made = style(Element(text.rstrip("."), self.rng.choice(ROLES), f"e{self.rng.randint(1, 99)}"))
            return made
        return text

    def finish(self, state, goal, options, answer, target):
        if isinstance(state, str):
            marked, state = state, state.replace(MARK, "")
        else:
            marked = json.dumps(state, ensure_ascii=False)
            state = json.loads(marked.replace(MARK, ""))
        return Decision(self.kind, self.split, state, goal, options, answer, tuple(self.used), marked, target)

    def assemble(self, elements, wanted, style, goal, state, ordered=None, extras=()):
        """Options from the elements and extras; `wanted` is an Element, or the extra that is right."""
        rng = self.rng
        items = [(e, style(e)) for e in elements]
        if ordered is None:
            ordered = self.chance(0.5)
        if not ordered:
            rng.shuffle(items)
        for text in extras:
            at = len(items) if self.chance(0.6) else rng.randint(0, len(items))
            items.insert(at, (text, text))
        answer = next(i for i, (e, _) in enumerate(items) if e is wanted)
        target = elements.index(wanted) if isinstance(wanted, Element) and MARK in json.dumps(state, ensure_ascii=False) else -1
        return self.finish(state, goal, [text for _, text in items], answer, target)

    def bystanders(self, style, refusal=True):
        """Extra options that are wrong here; the number of elements shrinks by them."""
        extras = []
        if refusal and self.count > 2 and self.chance(0.4):
            extras.append(self.extra(NO_MATCH if self.kind in ("affirm", "negate") or self.chance(0.6) else INERT, style))
        if self.count - len(extras) > 2 and self.chance(0.15):
            extras.append(self.extra(AGAIN, style))
        return extras

    # ---- kinds
    def named(self):
        rng = self.rng
        verb = rng.choice(GENERIC)
        other = verb if self.kind == "name" else rng.choice([v for v in GENERIC if v != verb])
        style = self.option_style(other)
        extras = self.bystanders(style)
        elements = self.elements(self.labels(self.count - len(extras), self.label()))
        wanted = elements[0]
        rng.shuffle(elements)
        goal = self.name_goal(wanted.label, wanted.role, verb)
        return self.assemble(elements, wanted, style, goal, self.make_state(elements, listed=False), extras=extras)
    make_name = make_verb = named

    def acts(self, count, group, verb, thing):
        """Labels of a verb and an object each: the wanted first, the others differ in the one or the other."""
        rng = self.rng
        made = {(id(group), thing): f"{verb} {thing}"}
        things = [thing] + [self.words.noun(rng) for _ in range(4)]
        groups = rng.sample([g for g in SYNONYMS if g is not group], 8)
        while len(made) < count:
            form = rng.random()
            other = group if form < 0.35 else rng.choice(groups)
            what = thing if 0.35 <= form < 0.7 else rng.choice([*things, self.words.noun(rng)]) if form < 0.95 else self.words.phrase(rng)
            if other is group and (what == thing or set(what.split()) & set(thing.split())):
                continue
            if (id(other), what) in made:
                groups.append(rng.choice([g for g in SYNONYMS if g is not group]))
                continue
            made[id(other), what] = f"{rng.choice(other)} {what}"
        return list(made.values())

    def make_paraphrase(self):
        rng = self.rng
        group = rng.choice(SYNONYMS)
        verb, other = rng.sample(group, 2)
        thing = self.words.phrase(rng) if self.chance(0.3) else self.words.noun(rng)
        style = self.option_style(rng.choice(NEUTRAL))
        extras = self.bystanders(style)
        elements = self.elements(self.acts(self.count - len(extras), group, verb, thing))
        wanted = elements[0]
        rng.shuffle(elements)
        statement = self.chance(0.3)
        core = self.frame(PARAPHRASE_STATEMENT if statement else PARAPHRASE)
        shown = thing if self.chance(0.8) else cased(thing, "title")
        goal = self.sentence(core.replace("{s}", other).replace("{o}", shown), statement)
        return self.assemble(elements, wanted, style, goal, self.make_state(elements, listed=False), extras=extras)

    def make_affirm(self):
        rng = self.rng
        yes = self.kind == "affirm"
        destructive = self.chance(0.6)
        verb = rng.choice(DESTRUCTIVE if destructive else OTHER_ACTS)
        thing = self.words.phrase(rng) if self.chance(0.3) else self.words.noun(rng)
        if self.chance(0.3):
            thing = thing + "s"

        def filled(form):
            return (form.replace("{V}", verb.capitalize()).replace("{v}", verb).replace("{ved}", participle(verb))
                    .replace("{ving}", gerund(verb)).replace("{o}", thing).replace("{O}", thing.capitalize())
                    .replace("{d}", str(rng.randint(2, 9))))

        style = self.option_style(rng.choice(NEUTRAL))
        extras = self.bystanders(style)
        no_forms = NO_KEEPING if destructive and self.chance(0.35) else NO
        no_forms = [f for f in no_forms if not (verb == "cancel" and f.startswith(("Cancel", "Abort")))]
        yes_forms = [f for f in YES if not (verb == "cancel" and f in ("{V}", "{V} now"))]
        pair = [filled(rng.choice(yes_forms)), filled(rng.choice(no_forms))]
        side = []
        while len(side) < self.count - len(extras) - 2:
            text = rng.choice(SIDE) if len(side) < 4 and self.chance(0.5) else cased(self.words.phrase(rng), "sentence")
            if text not in side and thing not in text.lower() and text.lower() != verb:
                side.append(text)
        if self.case == "upper":
            pair = [p.upper() for p in pair]
        elif self.case == "title" and self.chance(0.5):
            pair = [cased(p, "title") for p in pair]
        elements = self.elements(pair + side)
        if self.chance(0.7):
            for e in elements[:2]:
                e.role = "button"
        wanted = elements[0 if yes else 1]
        rng.shuffle(elements)
        frames = AFFIRM if yes else KEEP if destructive and self.chance(0.3) else NEGATE
        core = self.frame(frames)
        statement = core.split()[0] in ("the", "I", "yes", "no", "yes,", "no,", "it", "there", "not", "nobody", "we", "you", "stop,")
        goal = self.sentence(filled(core), statement)
        question = filled(self.maybe_new(QUESTIONS))
        state = self.make_state(elements, [question])
        return self.assemble(elements, wanted, style, goal, state, extras=extras)

    def make_negate(self):
        if self.chance(0.6):
            return self.make_affirm()
        rng = self.rng
        verb = rng.choice(GENERIC)
        style = self.option_style(verb if self.chance(0.5) else rng.choice(GENERIC))
        extras = self.bystanders(style, refusal=self.count > 3)
        elements = self.elements(self.labels(max(2, self.count - len(extras))))
        wanted, unwanted = elements[:2]
        rng.shuffle(elements)
        core = self.frame(CONTRAST)
        values = {"A": fill(form := self.maybe_new(QUOTES), unwanted.label), "B": fill(form, wanted.label)}
        statement = "{v}" not in core or core.split()[0] in ("not", "no,", "never", "do", "don't", "{A}", "we", "I")
        goal = self.sentence(self.verb_goal(core, verb, **values), statement)
        return self.assemble(elements, wanted, style, goal, self.make_state(elements, listed=False), extras=extras)

    def make_abstain(self):
        rng = self.rng
        verb = rng.choice(GENERIC)
        style = self.option_style(rng.choice(NEUTRAL))
        refusal = self.extra(NO_MATCH if self.chance(0.65) else INERT, style)
        extras = [refusal]
        if self.count > 2 and self.chance(0.15):
            extras.append(self.extra(AGAIN, style))
        rest = self.count - len(extras)
        form = rng.random()
        if form < 0.7:
            labels = self.labels(rest + 1, self.label())
            everything = self.elements(labels)
            missing, elements = everything[0], everything[1:]
            goal = self.name_goal(missing.label, missing.role, verb)
        elif form < 0.95:
            group = rng.choice(SYNONYMS)
            thing = self.words.noun(rng)
            elements = self.elements(self.acts(rest + 1, group, rng.choice(group), thing))[1:]
            statement = self.chance(0.3)
            core = self.frame(PARAPHRASE_STATEMENT if statement else PARAPHRASE)
            goal = self.sentence(core.replace("{s}", rng.choice(group)).replace("{o}", thing), statement)
        else:
            style = self.option_style(rng.choice(GENERIC), need_id=True)
            everything = self.elements(self.labels(rest + 1))
            missing, elements = everything[0], everything[1:]
            goal = self.sentence(self.verb_goal(self.frame(BY_ID), verb, I=missing.id, r=missing.role), False, before=False)
        rng.shuffle(elements)
        return self.assemble(elements, refusal, style, goal, self.make_state(elements, listed=False), extras=extras)

    def position(self, tree):
        rng = self.rng
        verb = rng.choice(GENERIC)
        style = self.option_style(rng.choice(GENERIC))
        extras = []
        if tree and self.count > 2 and self.chance(0.3):
            extras.append(self.extra(NO_MATCH, style))
        elements = self.elements(self.labels(self.count - len(extras)))
        count = len(elements)
        at = rng.randrange(count)
        thing = rng.choice([t for t in THINGS if not (tree and t == "option")])
        if len({e.role for e in elements}) == 1 and self.chance(0.5):
            thing = elements[0].role
        ordinals = [f"{at + 1}" + ("th" if 10 < at + 1 < 14 else {1: "st", 2: "nd", 3: "rd"}.get((at + 1) % 10, "th"))]
        if at < len(ORDINALS):
            ordinals += [ORDINALS[at]] * 3
        core = self.frame(POSITION)
        if at == count - 1 and self.chance(0.5):
            ordinals = ["last"]
            while "{c}" in core or "top" in core or "count" in core:
                core = self.frame(POSITION)
        elif at == count - 2 and at > 1 and self.chance(0.15):
            ordinals = ["second to last", "last but one"]
            while "{c}" in core or "top" in core or "count" in core:
                core = self.frame(POSITION)
        goal = self.sentence(self.verb_goal(core, verb, N=rng.choice(ordinals), c=str(at + 1), t=thing), False)
        state = self.make_state(elements)
        return self.assemble(elements, elements[at], style, goal, state, ordered=not tree, extras=extras)

    def make_position(self):
        return self.position(False)

    def make_position_tree(self):
        return self.position(True)

    def by_id(self, tree):
        rng = self.rng
        verb = rng.choice(GENERIC)
        style = self.option_style(rng.choice(GENERIC), need_id=not tree)
        extras = self.bystanders(style)
        elements = self.elements(self.labels(self.count - len(extras)))
        wanted = rng.choice(elements)
        core = self.frame(BY_ID)
        goal = self.sentence(self.verb_goal(core, verb, I=wanted.id, r=wanted.role), core.startswith(("{I}", "the")))
        if goal.isupper():
            goal = goal.lower()
        if wanted.id not in goal:  # a capital at the start
            goal = goal[:1].lower() + goal[1:]
        state = self.make_state(elements, need_id=tree)
        return self.assemble(elements, wanted, style, goal, state, extras=extras)

    def make_id(self):
        return self.by_id(False)

    def make_id_tree(self):
        return self.by_id(True)

    def make_role(self):
        rng = self.rng
        verb = rng.choice(GENERIC)
        style = self.option_style(rng.choice(GENERIC), need_role=True)
        extras = self.bystanders(style)
        count = self.count - len(extras)
        role, *others = rng.sample(ROLES, rng.randint(2, 4))
        elements = self.elements(self.labels(count), [role] + rng.choices(others, k=count - 1))
        wanted = elements[0]
        rng.shuffle(elements)
        spoken = SPOKEN.get(role, role) if self.chance(0.6) else role
        core = self.frame(BY_ROLE)
        goal = self.sentence(self.verb_goal(core, verb, R=spoken), core.startswith(("the", "I")))
        state = self.make_state(elements, need_role=True)
        return self.assemble(elements, wanted, style, goal, state, extras=extras)

    def make(self):
        return getattr(self, "make_" + self.kind.replace("-", "_"))()


def decision(rng, kind, split="seen", least=2, most=MOST):
    """One decision of least to most options (refusals and the like included)."""
    while True:
        made = Maker(rng, kind, split, least, most).make()
        texts = [o if isinstance(o, str) else json.dumps(o) for o in made.options]
        if len(set(texts)) == len(texts) and least <= len(texts) <= most:
            return made


def decisions(seed, kind, split, count, least=2, most=MOST):
    rng = random.Random(f"{seed}/{kind}/{split}/{least}/{most}")
    return [decision(rng, kind, split, least, most) for _ in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=1)
    parser.add_argument("--split", choices=SPLITS, default="seen")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=10)
    arguments = parser.parse_args()
    for kind in [arguments.kind] if arguments.kind else KINDS:
        for made in decisions(arguments.seed, kind, arguments.split, arguments.count, most=arguments.most):
            text = made.prompt()[0].removeprefix(SYSTEM)
            print(f"==== {kind}, {made.split}: {'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[made.answer]}\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
