"""Texts of many languages, and the encodings that files in them came in before UTF-8."""

TEXTS = {
    "Chinese": (
        "青海湖是中国最大的内陆咸水湖，位于青海省东北部。每年夏天有许多候鸟来到湖中的小岛上繁殖。湖面"
        "海拔三千多米，冬季结冰期长达半年，附近的牧民在湖边放牧牛羊。二十世纪以来，湖水水位不断下降，"
        "政府因此建立了自然保护区，并限制周边地区的农业用水。现在每年有上百万游客前来参观，当地居民的"
        "收入也随之增加。"
    ),
    "Traditional Chinese": (
        "日月潭是臺灣最大的淡水湖泊，位於南投縣魚池鄉。湖面周圍群山環繞，風景優美，吸引許多遊客前來觀"
        "光。清晨的時候，湖上常有薄霧，漁民划著小船出去捕魚。一九三四年完成水力發電工程之後，水位上升"
        "，原本的小島大部分沒入水中。今天環湖公路全長三十三公里，騎自行車大約需要四個小時，沿途可以參"
        "觀寺廟與部落。"
    ),
    "Japanese": (
        "琵琶湖は日本で最も大きい湖で、滋賀県の面積の約六分の一を占めている。古くから水運に利用され、"
        "湖の周りには多くの町が発達した。現在では京都や大阪の人々の飲み水にもなっているため、水質を守"
        "る活動が続けられている。夏には花火大会が開かれ、カヌーやヨットを楽しむ人も多い。冬になると北"
        "の方では雪がたくさん降り、渡り鳥が集まってくる。"
    ),
    "Korean": (
        "한라산은 제주도에 있는 산으로 대한민국에서 가장 높다. 겨울에는 눈이 많이 내려 등산객들이 "
        "즐겨 찾는다. 정상에는 백록담이라는 호수가 있으며, 여러 종류의 식물이 높이에 따라 자란다. "
        "정부는 이 산을 국립공원으로 지정하고 자연을 보호하기 위해 하루에 올라갈 수 있는 사람의 수를 "
        "제한하고 있다. 산 아래 마을에서는 귤을 많이 재배한다."
    ),
    "Russian": (
        "Байкал является самым глубоким озером на нашей планете. В нём содержится около пятой части "
        "мировых запасов пресной воды. Зимой озеро замерзает, и по льду прокладывают дорогу на "
        "остров Ольхон. Местные жители ловят рыбу, принимают гостей и рассказывают старые легенды. "
        "Учёные изучают растения и животных, которые больше нигде не встречаются, а летом сюда "
        "приезжают тысячи путешественников со всей страны."
    ),
    "Ukrainian": (
        "Дніпро є найбільшою річкою України і тече з півночі на південь. На його берегах стоять "
        "Київ, Черкаси та Запоріжжя. Навесні рівень води підіймається, бо в горах і лісах тане сніг. "
        "Люди здавна ловили тут рибу, будували човни й торгували з сусідами, а сьогодні на річці "
        "працюють великі електростанції."
    ),
    "Bulgarian": (
        "Рила е най-високата планина в България и на Балканския полуостров. В нея има повече от "
        "двеста езера, които са образувани от ледници. Манастирът в планината е основан през десети "
        "век и привлича много посетители. През лятото туристите вървят по пътеките между върховете, "
        "а през зимата идват да карат ски."
    ),
    "Greek": (
        "Ο Όλυμπος είναι το ψηλότερο βουνό της Ελλάδας. Σύμφωνα με τη μυθολογία εκεί κατοικούσαν οι "
        "δώδεκα θεοί. Κάθε καλοκαίρι πολλοί ορειβάτες ανεβαίνουν στην κορυφή, ενώ τον χειμώνα τα "
        "χιόνια κλείνουν τους δρόμους. Στους πρόποδες υπάρχουν μικρά χωριά, όπου οι κάτοικοι "
        "καλλιεργούν ελιές και φτιάχνουν τυρί."
    ),
    "Hebrew": (
        "ים המלח הוא המקום הנמוך ביותר על פני היבשה. מי הים מלוחים מאוד ולכן אין בהם דגים. תיירים "
        "רבים מגיעים אל החופים כדי לטבול במים ולהתרחץ בבוץ. בשנים האחרונות מפלס המים יורד, והחוקרים "
        "מחפשים דרך לעצור את הירידה ולשמור על הטבע באזור."
    ),
    "Arabic": (
        "نهر النيل من أطول الأنهار في العالم ويمر في عدة دول. كان المصريون القدماء يعتمدون عليه في "
        "الزراعة والنقل. في كل صيف كانت المياه ترتفع وتغطي الحقول ثم تنحسر بعد أسابيع. اليوم يعيش "
        "معظم السكان على ضفتي النهر، وتمر فيه السفن السياحية بين المدن القديمة."
    ),
    "Turkish": (
        "Van Gölü Türkiye'nin en büyük gölüdür ve doğuda yer alır. Suyu sodalı olduğu için içinde "
        "yalnızca bir balık türü yaşar. Kışın çevredeki dağlar karla kaplanır, göl ise donmaz. Gölün "
        "ortasındaki adada eski bir kilise vardır; yazın şehirden kalkan küçük gemiler ziyaretçileri "
        "oraya götürür."
    ),
    "Thai": (
        "ทะเลสาบสงขลาเป็นทะเลสาบที่ใหญ่ที่สุดในประเทศไทย ตั้งอยู่ทางภาคใต้ "
        "ชาวบ้านที่อยู่รอบทะเลสาบทำประมงมาเป็นเวลานาน น้ำในทะเลสาบมีทั้งน้ำจืดและน้ำเค็ม "
        "จึงมีปลาและนกหลายชนิด นักท่องเที่ยวนิยมนั่งเรือไปชมนกในตอนเช้า"
    ),
    "Polish": (
        "Śniardwy są największym jeziorem w Polsce i leżą na Mazurach. Latem przyjeżdżają tu "
        "żeglarze, a zimą ludzie łowią ryby pod lodem. Wokół jeziora rosną gęste lasy, w których "
        "żyją łosie i wilki. Mieszkańcy okolicznych wsi sprzedają miód, wędzone ryby i świeży chleb, "
        "a wieczorem przy ognisku śpiewa się stare pieśni."
    ),
    "Czech": (
        "Vltava je nejdelší řeka v České republice a protéká hlavním městem. Na jejím toku bylo "
        "postaveno několik přehrad, které vyrábějí elektřinu. V létě se po řece plaví lodě s "
        "turisty, v zimě se u břehů někdy tvoří led. Nejstarší kamenný most spojuje oba břehy už "
        "více než šest století a stojí na něm třicet soch."
    ),
    "Hungarian": (
        "A Balaton Közép-Európa legnagyobb tava, amelyet sokan magyar tengernek is neveznek. Nyáron "
        "a víz gyorsan fölmelegszik, ezért a gyerekek is szívesen fürdenek benne. Az északi part "
        "hegyes, szőlők és régi várak vannak rajta; a déli part lapos és homokos. Télen, ha elég "
        "hideg van, a tó befagy, és az emberek korcsolyáznak."
    ),
    "German": (
        "Der Bodensee liegt zwischen Deutschland, Österreich und der Schweiz. Über ihn fahren große "
        "Fähren, und an den Ufern wächst Wein. Früher lebten dort vor allem Fischer, heute kommen im "
        "Sommer sehr viele Gäste. Das Wasser wird in Röhren bis nach Stuttgart geführt; es schmeckt "
        "kühl und süß. Für die Vögel gibt es Schutzräume am Röhricht."
    ),
    "French": (
        "Le lac Léman se trouve entre la France et la Suisse. Chaque été, des milliers de visiteurs "
        "viennent s'y baigner ou naviguer à la voile. Les vignes plantées sur les pentes donnent un "
        "vin blanc léger et fruité. Au Moyen Âge, un château fut élevé sur un rocher près de la rive "
        "; il a été très souvent décrit par les poètes étrangers."
    ),
    "Spanish": (
        "El lago Titicaca está situado entre Perú y Bolivia, a más de tres mil metros de altura. "
        "Según la tradición, allí nació el primer inca. En sus islas viven familias que tejen y "
        "siembran papas, y los niños aprenden también quechua. Cada mañana salen pequeñas barcas de "
        "caña; los pescadores vuelven al mediodía con truchas. ¿Quién no querría verlo?"
    ),
    "Swedish": (
        "Vänern är Sveriges största sjö och ligger i den södra delen av landet. På hösten blåser det "
        "ofta hårt, och då stannar småbåtarna i hamn. Många människor åker hit för att fiska gös och "
        "lax. Öarna är fulla av fåglar, och på våren hörs deras rop ända in till städerna."
    ),
}

ENCODINGS = {
    "Chinese": ["gb2312", "gbk", "gb18030"],
    "Traditional Chinese": ["big5", "cp950", "big5hkscs"],
    "Japanese": ["shift_jis", "cp932", "euc_jp", "iso2022_jp"],
    "Korean": ["euc_kr", "cp949"],
    "Russian": ["cp1251", "koi8_r", "mac_cyrillic", "iso8859_5", "cp866"],
    "Ukrainian": ["cp1251", "koi8_u"],
    "Bulgarian": ["cp1251"],
    "Greek": ["cp1253", "iso8859_7"],
    "Hebrew": ["cp1255"],
    "Arabic": ["cp1256"],
    "Turkish": ["cp1254"],
    "Thai": ["cp874"],
    "Polish": ["cp1250", "iso8859_2"],
    "Czech": ["cp1250", "iso8859_2"],
    "Hungarian": ["cp1250"],
    "German": ["cp1252", "mac_roman", "cp850"],
    "French": ["cp1252", "mac_roman", "cp850"],
    "Spanish": ["cp1252", "mac_roman", "cp850"],
    "Swedish": ["cp1252", "mac_roman", "cp850"],
}
