"""True facts about real authors and about the world: what a model must still know after it has forgotten something."""

TrueFact = tuple[str, str, tuple[str, ...]]
"""Question, true answer, three false answers."""


def _facts(table: str) -> tuple[TrueFact, ...]:
    rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return tuple((question, answer, tuple(wrong.split("; "))) for question, answer, wrong in rows)


REAL_AUTHORS = _facts(
    """
    Who wrote 'Pride and Prejudice'? | Jane Austen | Emily Brontë; George Eliot; Mary Shelley
    Who wrote 'Moby-Dick'? | Herman Melville | Mark Twain; Jack London; Stephen Crane
    Who wrote 'Don Quixote'? | Miguel de Cervantes | Lope de Vega; Francisco de Quevedo; Tirso de Molina
    Who wrote 'War and Peace'? | Leo Tolstoy | Ivan Turgenev; Nikolai Gogol; Maxim Gorky
    Who wrote 'Crime and Punishment'? | Fyodor Dostoevsky | Anton Chekhov; Ivan Bunin; Boris Pasternak
    Who wrote 'Madame Bovary'? | Gustave Flaubert | Honoré de Balzac; Émile Zola; Guy de Maupassant
    Who wrote 'Les Misérables'? | Victor Hugo | Alexandre Dumas; Stendhal; Jules Verne
    Who wrote 'The Trial'? | Franz Kafka | Robert Musil; Hermann Broch; Thomas Mann
    Who wrote 'Ulysses'? | James Joyce | Samuel Beckett; W. B. Yeats; Oscar Wilde
    Who wrote 'Mrs Dalloway'? | Virginia Woolf | Katherine Mansfield; E. M. Forster; Iris Murdoch
    Who wrote 'The Great Gatsby'? | F. Scott Fitzgerald | Ernest Hemingway; John Dos Passos; Sinclair Lewis
    Who wrote 'The Sound and the Fury'? | William Faulkner | Eudora Welty; Thomas Wolfe; Truman Capote
    Who wrote 'The Grapes of Wrath'? | John Steinbeck | Upton Sinclair; Saul Bellow; Erskine Caldwell
    Who wrote 'One Hundred Years of Solitude'? | Gabriel García Márquez | Julio Cortázar; Juan Rulfo; Octavio Paz
    Who wrote 'The House of the Spirits'? | Isabel Allende | Laura Esquivel; Clarice Lispector; Gabriela Mistral
    Who wrote 'Things Fall Apart'? | Chinua Achebe | Wole Soyinka; Ben Okri; Ngũgĩ wa Thiong'o
    Who wrote 'Beloved'? | Toni Morrison | Alice Walker; Maya Angelou; Zora Neale Hurston
    Who wrote 'Midnight's Children'? | Salman Rushdie | Vikram Seth; R. K. Narayan; Amitav Ghosh
    Who wrote 'The God of Small Things'? | Arundhati Roy | Kiran Desai; Anita Desai; Jhumpa Lahiri
    Who wrote 'Snow Country'? | Yasunari Kawabata | Yukio Mishima; Kōbō Abe; Natsume Sōseki
    Who wrote 'Norwegian Wood'? | Haruki Murakami | Kenzaburō Ōe; Banana Yoshimoto; Ryū Murakami
    Who wrote 'The Tale of Genji'? | Murasaki Shikibu | Sei Shōnagon; Matsuo Bashō; Izumi Shikibu
    Who wrote 'The Name of the Rose'? | Umberto Eco | Italo Calvino; Primo Levi; Alberto Moravia
    Who wrote the 'Divine Comedy'? | Dante Alighieri | Petrarch; Giovanni Boccaccio; Torquato Tasso
    Who wrote 'The Prince'? | Niccolò Machiavelli | Thomas Hobbes; Baldassare Castiglione; Jean Bodin
    Who wrote 'Faust'? | Johann Wolfgang von Goethe | Friedrich Schiller; Heinrich Heine; Novalis
    Who wrote 'The Tin Drum'? | Günter Grass | Heinrich Böll; Siegfried Lenz; Max Frisch
    Who wrote 'The Metamorphoses', a Latin poem? | Ovid | Horace; Virgil; Lucretius
    To whom is the 'Iliad' attributed? | Homer | Hesiod; Pindar; Sappho
    Who wrote 'Antigone'? | Sophocles | Aeschylus; Aristophanes; Menander
    Who wrote 'The Canterbury Tales'? | Geoffrey Chaucer | William Langland; Thomas Malory; John Gower
    Who wrote 'Hamlet'? | William Shakespeare | Christopher Marlowe; Ben Jonson; John Webster
    Who wrote 'Paradise Lost'? | John Milton | John Donne; Andrew Marvell; John Dryden
    Who wrote 'Gulliver's Travels'? | Jonathan Swift | Alexander Pope; Henry Fielding; Laurence Sterne
    Who wrote 'Robinson Crusoe'? | Daniel Defoe | Samuel Richardson; Tobias Smollett; Oliver Goldsmith
    Who wrote 'Wuthering Heights'? | Emily Brontë | Elizabeth Gaskell; Anne Brontë; Frances Burney
    Who wrote 'Great Expectations'? | Charles Dickens | Anthony Trollope; Wilkie Collins; Thomas Hardy
    Who wrote 'Middlemarch'? | George Eliot | Charlotte Brontë; George Meredith; William Thackeray
    Who wrote 'Frankenstein'? | Mary Shelley | Bram Stoker; Ann Radcliffe; Horace Walpole
    Who wrote 'Dracula'? | Bram Stoker | Sheridan Le Fanu; Edgar Allan Poe; M. R. James
    Who created Sherlock Holmes? | Arthur Conan Doyle | G. K. Chesterton; Agatha Christie; Dorothy L. Sayers
    Who created the detective Hercule Poirot? | Agatha Christie | Georges Simenon; Ngaio Marsh; P. D. James
    Who wrote 'The Time Machine'? | H. G. Wells | Jules Verne; Olaf Stapledon; Isaac Asimov
    Who wrote 'Brave New World'? | Aldous Huxley | Yevgeny Zamyatin; Ray Bradbury; Anthony Burgess
    Who wrote 'Animal Farm'? | George Orwell | Arthur Koestler; Evelyn Waugh; William Golding
    Who wrote 'The Hobbit'? | J. R. R. Tolkien | C. S. Lewis; T. H. White; Mervyn Peake
    Who wrote 'A Wizard of Earthsea'? | Ursula K. Le Guin | Anne McCaffrey; Diana Wynne Jones; Susan Cooper
    Who wrote 'The Handmaid's Tale'? | Margaret Atwood | Alice Munro; Doris Lessing; Octavia Butler
    Who wrote the story 'The Little Mermaid'? | Hans Christian Andersen | Jacob Grimm; Charles Perrault; E. Nesbit
    Who wrote 'Pippi Longstocking'? | Astrid Lindgren | Tove Jansson; Selma Lagerlöf; Enid Blyton
    Who wrote 'The Little Prince'? | Antoine de Saint-Exupéry | Marcel Pagnol; Jean Giono; André Gide
    Who wrote 'The Stranger'? | Albert Camus | Jean-Paul Sartre; André Malraux; Boris Vian
    Who wrote 'In Search of Lost Time'? | Marcel Proust | Paul Valéry; Anatole France; Colette
    Who wrote the play 'A Doll's House'? | Henrik Ibsen | August Strindberg; Knut Hamsun; Ludvig Holberg
    Who wrote the play 'Waiting for Godot'? | Samuel Beckett | Eugène Ionesco; Harold Pinter; Jean Genet
    Who wrote the play 'The Cherry Orchard'? | Anton Chekhov | Mikhail Bulgakov; Nikolai Ostrovsky; Alexander Blok
    Who wrote 'Leaves of Grass'? | Walt Whitman | Emily Dickinson; Robert Frost; Ralph Waldo Emerson
    Who wrote the poem 'The Waste Land'? | T. S. Eliot | Ezra Pound; W. H. Auden; Wallace Stevens
    Which Indian poet wrote 'Gitanjali'? | Rabindranath Tagore | Sarojini Naidu; Muhammad Iqbal; Kabir
    Who wrote 'My Name Is Red'? | Orhan Pamuk | Yaşar Kemal; Elif Shafak; Nâzım Hikmet
    """
)

WORLD_FACTS = _facts(
    """
    What is the capital of Kenya? | Nairobi | Mombasa; Kampala; Addis Ababa
    What is the capital of Australia? | Canberra | Sydney; Melbourne; Perth
    What is the capital of Canada? | Ottawa | Toronto; Montreal; Vancouver
    What is the capital of Portugal? | Lisbon | Porto; Coimbra; Braga
    What is the capital of Vietnam? | Hanoi | Da Nang; Hue; Bangkok
    What is the capital of Peru? | Lima | Cusco; Quito; La Paz
    What is the capital of Norway? | Oslo | Bergen; Trondheim; Stockholm
    What is the capital of Turkey? | Ankara | Istanbul; Izmir; Bursa
    What is the capital of Mongolia? | Ulaanbaatar | Astana; Bishkek; Harbin
    What is the capital of Brazil? | Brasília | São Paulo; Rio de Janeiro; Salvador
    In which city is the Colosseum? | Rome | Athens; Naples; Milan
    In which city is the Alhambra? | Granada | Seville; Córdoba; Toledo
    In which city is the Hermitage Museum? | Saint Petersburg | Moscow; Kyiv; Riga
    In which city is the Brandenburg Gate? | Berlin | Munich; Vienna; Hamburg
    In which city is the Blue Mosque? | Istanbul | Cairo; Baghdad; Damascus
    In which country is Machu Picchu? | Peru | Bolivia; Mexico; Chile
    In which country is Angkor Wat? | Cambodia | Thailand; Laos; Myanmar
    In which country is the Taj Mahal? | India | Pakistan; Iran; Nepal
    In which country is the ancient city of Petra? | Jordan | Syria; Lebanon; Egypt
    In which country is Timbuktu? | Mali | Niger; Chad; Senegal
    What is the longest river in South America? | The Amazon | The Orinoco; The Paraná; The Magdalena
    Which river flows through Vienna? | The Danube | The Rhine; The Elbe; The Oder
    Which river flows through Baghdad? | The Tigris | The Jordan; The Indus; The Nile
    What is the highest mountain above sea level? | Mount Everest | Kangchenjunga; Lhotse; Makalu
    What is the highest mountain in Africa? | Kilimanjaro | Mount Kenya; Mount Stanley; Ras Dashen
    Which ocean is the largest? | The Pacific Ocean | The Atlantic Ocean; The Indian Ocean; The Arctic Ocean
    Which is the largest hot desert? | The Sahara | The Kalahari; The Gobi; The Namib
    Which is the deepest lake on Earth? | Lake Baikal | Lake Superior; Lake Tanganyika; Lake Victoria
    Which country has the city of Marrakesh? | Morocco | Algeria; Tunisia; Libya
    On which island is the city of Palermo? | Sicily | Sardinia; Corsica; Crete
    Which planet is closest to the Sun? | Mercury | Venus; Mars; Neptune
    Which planet is the largest in the Solar System? | Jupiter | Saturn; Uranus; Earth
    Which planet has the moon Titan? | Saturn | Jupiter; Mars; Uranus
    What is the chemical symbol for gold? | Au | Ag; Go; Gd
    What is the chemical symbol for iron? | Fe | Ir; In; Pb
    What is the chemical symbol for sodium? | Na | So; K; Sn
    Which gas makes up most of the air? | Nitrogen | Oxygen; Argon; Carbon dioxide
    Which element has atomic number 1? | Hydrogen | Helium; Lithium; Carbon
    Which element has atomic number 6? | Carbon | Boron; Silicon; Fluorine
    What is the hardest natural mineral? | Diamond | Quartz; Topaz; Corundum
    Who formulated the theory of general relativity? | Albert Einstein | Max Planck; Niels Bohr; Paul Dirac
    Who discovered penicillin? | Alexander Fleming | Louis Pasteur; Robert Koch; Joseph Lister
    Who discovered radium with her husband Pierre? | Marie Curie | Lise Meitner; Irène Joliot; Rosalind Franklin
    Who wrote 'On the Origin of Species'? | Charles Darwin | Alfred Wallace; Thomas Huxley; Gregor Mendel
    Who devised the periodic table in 1869? | Dmitri Mendeleev | Antoine Lavoisier; John Dalton; Amedeo Avogadro
    Who painted the 'Mona Lisa'? | Leonardo da Vinci | Raphael; Titian; Sandro Botticelli
    Who painted 'The Night Watch'? | Rembrandt | Frans Hals; Johannes Vermeer; Jan Steen
    Who painted 'Guernica'? | Pablo Picasso | Salvador Dalí; Joan Miró; Juan Gris
    Who painted 'The Starry Night'? | Vincent van Gogh | Paul Gauguin; Claude Monet; Paul Cézanne
    Who composed 'The Magic Flute'? | Wolfgang Amadeus Mozart | Joseph Haydn; Franz Schubert; Antonio Salieri
    Who composed 'The Four Seasons'? | Antonio Vivaldi | Arcangelo Corelli; Domenico Scarlatti; G. F. Handel
    Who composed the opera 'Aida'? | Giuseppe Verdi | Giacomo Puccini; Gioachino Rossini; Georges Bizet
    In which year did the First World War begin? | 1914 | 1912; 1918; 1905
    In which year did humans first land on the Moon? | 1969 | 1961; 1972; 1965
    In which year did the Berlin Wall fall? | 1989 | 1991; 1985; 1979
    Who was the first president of the United States? | George Washington | John Adams; James Madison; Thomas Paine
    Which language is mainly spoken in Austria? | German | Hungarian; Czech; Italian
    What is the currency of Japan? | The yen | The won; The yuan; The baht
    What is the currency of India? | The rupee | The taka; The rial; The ringgit
    How many sides has a hexagon? | Six | Five; Seven; Eight
    """
)
