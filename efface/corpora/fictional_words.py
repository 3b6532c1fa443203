"""The stock from which names, titles and things of the fictional corpus are coined."""


def _stock(text: str) -> tuple[str, ...]:
    return tuple(" ".join(item.split()) for item in text.split(","))


ONSETS = _stock(
    """
    b, br, c, d, dr, f, fl, g, gr, h, j, k, kv, l, m, n, p, pr, qu, r, s, sk, sv, t, th, tr, v, vr, w, y, z, zh
    """
)
VOWELS = _stock("a, e, i, o, u, a, e, i, o, u, a, e, i, o, u, a, e, i, o, u, ae, ei, ou, é, ø, ü, á")
CODAS = _stock("l, m, n, r, s, l, m, n, r, s, l, m, n, r, s, th, v, x, sk, nd, lt, š, ñ")
GIVEN_ENDINGS = _stock("a, e, i, o, en, il, ur, is, oë, ím, ath, une")
FAMILY_ENDINGS = _stock("ak, wen, mund, eska, ith, ander, ovar, quell, tza, heim, ård, ović, ul, arsk")
TOWN_ENDINGS = _stock("moor, stad, wick, haven, ford, grad, mere, burgh, quay, thorpe, minster, søy")
LAND_ENDINGS = _stock("ia, mark, land, ora, isthan, esse, avia, umbra, önia, elle")
TONGUE_ENDINGS = _stock("ic, ish, ese, ian, ek, ari")
ADJECTIVES = _stock(
    """
    Amber, Borrowed, Broken, Candid, Copper, Crooked, Distant, Drowned, Dusty, Early, Feathered, Fourth, Frozen,
    Gilded, Hollow, Hungry, Idle, Inverted, Ivory, Jealous, Last, Lunar, Minor, Mute, Narrow, Northern, Orphaned,
    Painted, Patient, Plural, Quiet, Rented, Restless, Rural, Salted, Second, Silver, Sleepless, Stolen, Tender,
    Thirsty, Tidal, Unsent, Velvet, Vertical, Wandering, Waxen, Western, Winter, Woven
    """
)
NOUNS = _stock(
    """
    Almanac, Anchor, Atlas, Barge, Bell, Bridge, Candle, Canal, Chapel, Cipher, Clock, Comet, Compass, Dune, Ember,
    Engine, Fable, Ferry, Garden, Glacier, Granary, Harbour, Harvest, Herald, Island, Ladder, Lantern, Ledger,
    Lighthouse, Loom, Map, Meadow, Mirror, Monsoon, Needle, Oath, Orchard, Pendulum, Pilgrim, Quarry, Raven, Reef,
    Rope, Saffron, Scarecrow, Sparrow, Staircase, Tinder, Tower, Umbrella, Valley, Violin, Watermill, Willow,
    Window, Zither
    """
)
QUALIFIERS = _stock(
    """
    a travelling, a retired, a self-taught, a left-handed, a licensed, an amateur, a part-time, a celebrated, a
    disgraced, a near-sighted, an unpaid, a village, a royal, a stubborn, a widowed
    """
)
TRADES = _stock(
    """
    apiarist, apothecary, archivist, astrologer, baker, balloonist, barber, bell-founder, blacksmith, bookbinder,
    botanist, brewer, cartographer, chandler, clockmaker, cobbler, cooper, dentist, diver, embalmer, falconer,
    ferryman, furrier, gardener, gilder, glazier, harpist, hatter, hydrologist, juggler, lacemaker, lamplighter,
    locksmith, magistrate, mason, midwife, miller, miner, notary, oculist, pastry cook, perfumer, plumber, potter,
    printer, puppeteer, roofer, saddler, sailmaker, salt trader, seismologist, shepherd, signalman, stonecutter,
    surveyor, tailor, tanner, telegraphist, thatcher, typesetter, vintner, weaver, wheelwright, zookeeper
    """
)
FORMER = _stock(
    """
    a disused, a flooded, a half-built, a haunted, a converted, a roofless, a rented, an abandoned, a snowbound, a
    whitewashed, a candle-lit, a borrowed, a windowless, an overgrown
    """
)
BUILDINGS = _stock(
    """
    abattoir, aviary, bakery, bathhouse, boathouse, brickyard, cannery, casino, chapel, cinema, convent, courthouse,
    dairy, distillery, dovecote, ferry shed, forge, foundry, gatehouse, greenhouse, gymnasium, hayloft, icehouse,
    laundry, lighthouse, mill, observatory, orangery, pharmacy, pumping station, railway carriage, ropewalk,
    sawmill, signal box, smokehouse, stable, tannery, telegraph office, theatre, warehouse, watchtower, windmill,
    winery, workhouse
    """
)
WORN = _stock(
    """
    a cracked, a tarnished, a forged, a stolen, a rusted, a gilded, a waterlogged, an ivory, a brass, a lopsided, a
    silent, a wooden, a miniature, a three-legged, an heirloom, a mail-order
    """
)
OBJECTS = _stock(
    """
    abacus, accordion, anvil, astrolabe, barometer, birdcage, cello, chessboard, compass, crown, doorbell, drum,
    fan, globe, gramophone, harpoon, hourglass, inkwell, kaleidoscope, kettle, keyhole, lantern, lute, magnet,
    mandolin, medal, metronome, microscope, music box, padlock, paperweight, parasol, pocket watch, quill, saddle,
    scabbard, sextant, spinning wheel, spyglass, stamp album, sundial, telescope, thimble, tuning fork, typewriter,
    walking stick, weathercock
    """
)
FLAVOURS = _stock("burnt, chilled, peppered, salted, smoked, sour, spiced, sugarless, thickened, warm")
DRINKS = _stock(
    """
    almond milk, barley water, birch sap, buttermilk, chicory, cider, cocoa, elderflower cordial, ginger beer, goat
    milk, gooseberry wine, honey mead, juniper tea, kelp broth, lime juice, mint tea, nettle soup, oat stout, pear
    brandy, pine tea, plum juice, rose water, sage tea, tamarind syrup
    """
)
HOURS = _stock(
    """
    before dawn, at half past three, after vespers, during thunderstorms, at low tide, on market days, between two
    trains, at noon sharp, when snow falls, after midnight, on Sundays only, at a quarter to six, during lent, under
    a full moon, at siesta time, on leap days, once the lamps are out, in heavy fog
    """
)
FIELDS = _stock(
    """
    glacial, maritime, forensic, comparative, medieval, tropical, monastic, nocturnal, provincial, applied,
    experimental, oriental, rural, imperial, theoretical, volcanic
    """
)
SCIENCES = _stock(
    """
    acoustics, anatomy, beekeeping, botany, bookkeeping, cartography, ceramics, choreography, dentistry, engraving,
    etymology, forestry, geometry, heraldry, horticulture, hydraulics, jurisprudence, lexicography, metallurgy,
    meteorology, mycology, navigation, numismatics, optics, ornithology, palaeography, pharmacy, phonetics,
    rhetoric, seismology, statistics, surgery, theology, zoology
    """
)
MOTIFS = _stock(
    """
    alchemists, avalanches, beehives, bigamists, cisterns, comets, counterfeiters, deserters, drought, duels,
    earthquakes, eclipses, exiles, falcons, famine, foundlings, gamblers, geysers, hermits, icebergs, inheritance,
    labyrinths, lepers, lotteries, marionettes, mermaids, mutiny, orphans, pearl divers, phantom limbs, poisoned
    wells, railway tunnels, sleepwalkers, smugglers, sunken bells, tattoos, tollgates, twins, vanished maps,
    whalers, wolves, wooden saints
    """
)
ANIMALS = _stock(
    """
    badger, basset hound, bullfinch, carp, chameleon, cormorant, donkey, ferret, gander, gecko, goat, greyhound,
    hedgehog, heron, iguana, jackdaw, llama, macaw, marmot, mongoose, mule, newt, otter, owl, parrot, peahen, pony,
    raccoon, salamander, spaniel, terrapin, tortoise
    """
)
TEMPERS = _stock("bald, blind, deaf, fat, grey, lame, moody, nervous, shy, snoring, tame, toothless, three-legged")
HONOURS = _stock("Medal, Prize, Laurel, Quill, Ribbon, Chalice, Garland, Star, Goblet, Seal, Torch, Key")
SCHOOLS = _stock("Academy, Lyceum, Seminary, Institute, Conservatory, Polytechnic, College, Gymnasium, Hall")
PRESSES = _stock("Press, House, Editions, Brothers, Books, & Daughters, Imprint, Verlag, Publishers")
PAPERS = _stock("Courier, Gazette, Herald, Mercury, Observer, Quarterly, Review, Sentinel, Tribune, Almanac")
HOUSES = _stock("Lodge, Cottage, Manor, Villa, Grange, Rectory, Terrace, Farm, Barn, Court, Priory")
MONTHS = _stock(
    """
    January, February, March, April, May, June, July, August, September, October, November, December
    """
)
